"""Tests of `ledger: {generations: …}` as it is declared: where it works, and what is refused."""

from datetime import timedelta
from pathlib import Path

import pytest

from oncemq.config import load
from support.declared import BASE, declare, problems

POSTGRESQL = BASE.replace("sqlite://", "postgresql+psycopg://localhost/shop")

_REAL = """\
app: shop
brokers: {main: {url: "embedded:///FOLDER/broker.db"}}
database: {url: "postgresql+psycopg://localhost/shop"}
topics:
  orders: {key: body.id, strategies: [unique_key]}
  rows: {key: body.id, strategies: [{state_machine: {to: body.state, states: [a, b]}}]}
consumers:
  count: {topic: orders, handler: "MODULE:handle"}
  other: {topic: rows, identity: [body.id, body.state], handler: "MODULE:handle"}
"""


def declared(generations: str, base: str = POSTGRESQL, more: str = "") -> str:
    """Return an app with such generations."""
    return (
        base.replace("topic: orders,", f"topic: orders,{more}") + f"ledger: {{generations: {generations}}}\n"
    )


def test_a_consumer_that_records_identities_has_generations(tmp_path: Path) -> None:
    """The others of the app are as ever."""
    text = _REAL.replace("FOLDER", str(tmp_path)) + "ledger: {generations: 1d}\n"
    plan = load(declare(tmp_path, text)).plan
    assert plan.generations == {"shop.count": timedelta(days=1)}
    assert plan.consumers[1].generations is None


def test_without_the_option_there_are_none(tmp_path: Path) -> None:
    """Nothing changes for an app that does not write it, not a table."""
    plan = load(declare(tmp_path, _REAL.replace("FOLDER", str(tmp_path)))).plan
    assert plan.generations == {}
    assert not any(table.name == "oncemq_generations" for table in plan.tables())


@pytest.mark.parametrize(
    ("generations", "base", "more", "said"),
    [
        (
            "1d",
            POSTGRESQL.replace("postgresql+psycopg", "mysql+pymysql"),
            "",
            "generations need PostgreSQL, and MySQL",
        ),
        ("1d", BASE, "", "generations need PostgreSQL, and SQLite has one writer"),
        ("1d", BASE.replace('database: {url: "sqlite://"}\n', ""), "", "and the app has no database"),
        ("30s", POSTGRESQL, "", "30s is too short for a generation – write 1h, 1d or the like"),
        (
            "8d",
            POSTGRESQL,
            "",
            "consumer count keeps its records for 7d, which does not go with generations of 8d",
        ),
        ("1h", POSTGRESQL, " keep: 7d,", "write a duration from 6h to 7d"),
        ("often", POSTGRESQL, "", "`generations`: 'often' is not a duration"),
    ],
)
def test_what_cannot_be_sound_is_refused(
    tmp_path: Path, generations: str, base: str, more: str, said: str
) -> None:
    """In words that say what to write."""
    assert said in "\n".join(problems(tmp_path, declared(generations, base, more)))
