"""`unique_key: {also_seen_in: …}`: rows that another deduplicator has written count as applied."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from sqlalchemy import Column, MetaData, String, Table, delete, insert

from oncemq.contracts.verdict import Outcome
from oncemq.errors import ConfigError
from oncemq.ledger.database.engine import make_engine
from oncemq.message.envelope import Message
from oncemq.testing.strategy_suite.bench import Bench

MakeBench = Callable[..., Bench]

DEDUP = Table(
    "t_rocketmq_dedup",
    MetaData(),
    Column("application_name", String(20), primary_key=True),
    Column("msg_uniq_key", String(40), primary_key=True),
    Column("status", String(16)),
)
OPTIONS = {
    "also_seen_in": {
        "table": "t_rocketmq_dedup",
        "columns": {"msg_uniq_key": "body.id"},
        "where": {"application_name": "points", "status": "CONSUMED"},
    }
}


@pytest.fixture
def dedup(database_url: str) -> Iterator[Callable[..., None]]:
    """Return a function that writes rows as the other deduplicator does."""
    engine = make_engine(database_url)
    DEDUP.drop(engine, checkfirst=True)
    DEDUP.create(engine)

    def write(*keys: str, application: str = "points", status: str = "CONSUMED") -> None:
        rows = [{"application_name": application, "msg_uniq_key": key, "status": status} for key in keys]
        with engine.begin() as connection:
            connection.execute(insert(DEDUP), rows)

    yield write
    with engine.begin() as connection:
        connection.execute(delete(DEDUP))
    DEDUP.drop(engine)
    engine.dispose()


def paid(order: Any) -> Message:
    """Return a message about an order."""
    return Message("order.paid", json.dumps({"id": order, "n": 1}).encode())


def outcomes(bench: Bench, *orders: Any) -> list[Outcome]:
    """Deliver messages together."""
    return bench.deliver(*map(paid, orders))


def test_what_has_a_row_there_is_a_duplicate(make_bench: MakeBench, dedup: Callable[..., None]) -> None:
    """Neighbours in its unit run; the row of another application, or of one that still works, does not count."""
    dedup("old", "older")
    dedup("theirs", application="other")
    dedup("begun", status="CONSUMING")
    bench = make_bench("unique_key", OPTIONS)
    assert outcomes(bench, "old", "new", "theirs", "begun", "old") == [
        Outcome.DUPLICATE,
        Outcome.PROCEED,
        Outcome.PROCEED,
        Outcome.PROCEED,
        Outcome.DUPLICATE,
    ]
    assert [verdict.reason for verdict in bench.verdicts(paid("older"))] == ["seen in t_rocketmq_dedup"]


def test_it_stays_a_duplicate_when_the_row_is_gone(
    make_bench: MakeBench, dedup: Callable[..., None], database_url: str
) -> None:
    """The ledger has its own record then, so that the option can be removed."""
    dedup("old")
    bench = make_bench("unique_key", OPTIONS)
    assert outcomes(bench, "old") == [Outcome.DUPLICATE]
    engine = make_engine(database_url)
    with engine.begin() as connection:
        connection.execute(delete(DEDUP))
    engine.dispose()
    assert outcomes(bench, "old") == [Outcome.DUPLICATE]


@pytest.mark.parametrize("spelling", ["OLD", "old ", "öld"])
def test_another_spelling_is_another_message(
    make_bench: MakeBench, dedup: Callable[..., None], spelling: str
) -> None:
    """Whatever the columns' collation holds equal: a message that was never applied is not lost."""
    dedup("old")
    bench = make_bench("unique_key", OPTIONS)
    assert outcomes(bench, spelling, "old") == [Outcome.PROCEED, Outcome.DUPLICATE]


@pytest.mark.parametrize("order", [7, None, "x" * 100, "a\x00b", 10**30, {"a": 1}])
def test_a_message_that_can_have_no_row_there_runs(
    make_bench: MakeBench, dedup: Callable[..., None], order: Any
) -> None:
    """A value of another type, none, or one that is too long for the column."""
    dedup("old")
    columns = {"columns": {"msg_uniq_key": "body.other"}}
    bench = make_bench("unique_key", {"also_seen_in": {**OPTIONS["also_seen_in"], **columns}})
    message = Message("order.paid", json.dumps({"id": "a", "n": 1, "other": order}).encode())
    assert bench.deliver(message) == [Outcome.PROCEED]


def test_a_handler_that_fails_leaves_no_record(make_bench: MakeBench, dedup: Callable[..., None]) -> None:
    """A neighbour that was seen there keeps its own."""
    dedup("old")
    fails = [True]

    def handle(_body: Any, _session: Any) -> None:
        if fails[0]:
            raise ValueError

    bench = make_bench("unique_key", OPTIONS, handler=handle)
    assert outcomes(bench, "old", "new") == [Outcome.DUPLICATE, Outcome.RETRY]
    fails[0] = False
    assert outcomes(bench, "old", "new") == [Outcome.DUPLICATE, Outcome.PROCEED]


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"table": "t_rocketmq_dedup"}, "columns must be a mapping"),
        ({"table": "t_rocketmq_dedup; --", "columns": {"a": "body.id"}}, "is not a usable name"),
        (
            {"table": "t", "columns": {"a": "body.id"}, "when": 1},
            "unknown option 'when'; did you mean 'where'?",
        ),
        (
            {"table": "t", "columns": {"a": "body.id"}, "where": {"a": 1}},
            "a stands below `columns` and below `where`",
        ),
        ({"table": "t", "columns": {"a": "body..id"}}, "write one like body.order_id"),
    ],
)
def test_a_wrong_option_is_refused(make_bench: MakeBench, option: dict[str, Any], words: str) -> None:
    """In words that name the option."""
    with pytest.raises(ConfigError) as error:
        make_bench("unique_key", {"also_seen_in": option})
    assert words in str(error.value)
    assert "unique_key.also_seen_in" in str(error.value)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (
            {"table": "t_rocketmq_dedups"},
            "there is no table 't_rocketmq_dedups'; did you mean 't_rocketmq_dedup'?",
        ),
        ({"columns": {"msg_unique_key": "body.id"}}, "table t_rocketmq_dedup has no column 'msg_unique_key'"),
        ({"where": {"state": 1}}, "table t_rocketmq_dedup has no column 'state'"),
    ],
)
def test_a_table_that_does_not_fit_is_found_by_check(
    make_bench: MakeBench, dedup: Callable[..., None], facts: Any, option: dict[str, Any], words: str
) -> None:
    """Before a message needs it."""
    bench = make_bench("unique_key", {"also_seen_in": {**OPTIONS["also_seen_in"], **option}})
    (strategy,) = bench.strategies
    said: Sequence[Any] = list(strategy.check(facts(identity=("body.id",))))
    assert words in " ".join(map(str, said))
