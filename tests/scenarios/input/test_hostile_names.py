"""No name from a configuration is ever read as SQL: it is refused at its place in the file, or quoted."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Engine, MetaData, String, Table, event, insert, select
from sqlalchemy.orm import Session

from oncemq.common.problems import Severity
from oncemq.config import load
from oncemq.engine.transaction.connection_watch import install
from oncemq.errors import ConfigError
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.records.processed import TABLE as PROCESSED
from oncemq.ledger.records.row_mutexes import TABLE as LOCKED_ROWS
from oncemq.ledger.records.states import TABLE as STATES
from oncemq_strategies.state_machine.strategy import StateMachine
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.declared import declare
from support.hostile.names import HOSTILE, RESERVED
from support.units import UnitBench, build

APP = """\
app: shop
brokers: {main: {url: "embedded://hostile"}}
database: {url: "DATABASE"}
topics: {orders: {key: body.id, version: body.version, strategies: [STRATEGY]}}
consumers: {count: {topic: orders, handler: "MODULE:handle"}}
"""
HANDLERS = "def handle(order: dict) -> None: ...\n"
PLACES = {
    "unique_key table": "{unique_key: {table: NAME, columns: {id: body.id}}}",
    "unique_key column": "{unique_key: {table: orders, columns: {NAME: body.id}}}",
    "entity table": "{state_machine: {to: body.to, states: [a, b], entity: {table: NAME, key: id, state: status}}}",
    "entity key": "{state_machine: {to: body.to, states: [a, b], entity: {table: orders, key: NAME, state: status}}}",
    "entity state": "{state_machine: {to: body.to, states: [a, b], entity: {table: orders, key: id, state: NAME}}}",
}
AT_ITS_PLACE = re.compile(r"app\.yaml:\d+:\d+: ")


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """Every statement that any engine sends."""
    sent: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield sent
    event.remove(Engine, "before_cursor_execute", note)


def test_there_are_enough_hostile_names() -> None:
    """The corpus holds more than a hundred different names."""
    assert len(set(HOSTILE)) >= 100


@pytest.mark.parametrize("place", PLACES)
def test_a_hostile_name_is_refused_at_its_place_before_any_statement(
    tmp_path: Path, database_url: str, statements: list[str], place: str
) -> None:
    """Each name is refused with the line where it stands, and the database never hears of it."""
    for name in HOSTILE:
        strategy = PLACES[place].replace("NAME", json.dumps(name))
        text = APP.replace("DATABASE", database_url).replace("STRATEGY", strategy)
        with pytest.raises(ConfigError) as caught:
            load(declare(tmp_path, text, handlers=HANDLERS), environment={})
        assert AT_ITS_PLACE.search(str(caught.value)), name
        assert len(str(caught.value)) < 2000, name[:40]
        assert str(caught.value).replace("\n", "").isprintable(), name
    assert not statements


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A database with the ledger."""
    engine = make_engine(database_url)
    install(engine)
    schema.create(engine, [PROCESSED, STATES, LOCKED_ROWS])
    yield engine
    engine.dispose()


@pytest.mark.parametrize("name", RESERVED, ids=lambda name: name[:12])
def test_a_reserved_word_is_a_name_like_any_other(engine: Engine, name: str) -> None:
    """A table and its columns may be called like this, and both strategies work on them: they are quoted."""
    other = f"{name[:50]}_2"
    table = Table(name, MetaData(), Column(name, String(50), primary_key=True), Column(other, String(50)))
    table.create(engine)

    def place(order: dict[str, Any], session: Session) -> None:
        session.execute(insert(table).values({name: order["key"], other: None}))

    unique = build(UniqueKey, engine, "names", {"table": name, "columns": {name: "body.key"}})
    entity = {"table": name, "key": name, "state": other}
    machine = build(StateMachine, engine, "names", {"to": "body.to", "states": ["a", "b"], "entity": entity})
    found = [*unique._records.check(), *machine._store.check(["a", "b"])]
    assert [problem for problem in found if problem.severity is Severity.ERROR] == []
    placing = UnitBench(engine, place, unique)
    assert placing.run({"id": "1", "key": "k"}, {"id": "2", "key": "k"}) == ["applied", "duplicate"]
    moving = UnitBench(engine, lambda order: None, machine)
    assert (
        moving.run({"id": "3", "key": "k", "to": "a"}, {"id": "4", "key": "k", "to": "b"}) == ["applied"] * 2
    )
    with engine.connect() as connection:
        assert connection.execute(select(table)).all() == [("k", "b")]
