"""A handler of batches names the messages that failed; the others run again without them, and take effect."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from oncemq import BadItems, Batch, Publisher, Reject, Retry
from oncemq.engine.transaction.transaction_guard import NeedsIsolation
from oncemq.errors import HandlerFault, InfrastructureError
from oncemq.testing.event_loop import Loop
from oncemq_strategies.unique_key.strategy import UniqueKey
from suites.kit.conftest import Bench
from suites.kit.conftest import Effect as KitEffect
from suites.kit.conftest import effects as kit_effects
from support.effects import TAKE_THE_TAKEN, effects, give
from support.units import UnitBench, orders

Order = dict[str, Any]
Naming = Callable[[int, Order], BaseException | None]


class Handler:
    """Gives every order of a batch, and names those for which `naming` returns an error.

    Args:
        naming: called with position and order.

    Attributes:
        calls: the ids of each call.
    """

    def __init__(self, naming: Naming) -> None:
        self.naming = naming
        self.calls: list[str] = []

    def __call__(self, batch: Batch[Order], session: Session) -> None:
        """Give all, then name some."""
        self.calls.append("".join(order["id"] for order in batch))
        for order in batch:
            give(session, order)
        session.flush()
        named = {at: error for at, order in enumerate(batch) if (error := self.naming(at, order)) is not None}
        if named:
            raise BadItems(named)


def naming(errors: Mapping[str, BaseException]) -> Naming:
    """Return a function that names the orders with these ids."""
    return lambda _, order: errors.get(order["id"])


def test_the_others_run_again_without_the_named(engine: Engine) -> None:
    """One further call is enough to apply them, and nothing of the first one stays."""
    handler = Handler(naming({"b": ValueError("bad b"), "d": ValueError("bad d")}))
    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders(*"abcde")) == ["applied", "retry", "applied", "retry", "applied"]
    assert sorted(effects(engine)) == ["a", "c", "e"]
    assert len(handler.calls) <= 3
    assert bench.errors() == ["ValueError", "ValueError"]


def test_a_named_message_leaves_no_record(engine: Engine) -> None:
    """It runs again when it is delivered again, and is then applied."""
    errors: dict[str, BaseException] = {"b": ValueError("bad")}
    bench = UnitBench(engine, Handler(naming(errors)), UniqueKey)
    assert bench.run(*orders(*"abc")) == ["applied", "retry", "applied"]
    errors.clear()
    assert bench.run(*orders(*"abc")) == ["duplicate", "applied", "duplicate"]
    assert sorted(effects(engine)) == ["a", "b", "c"]


def test_each_error_decides_about_its_own_message(engine: Engine) -> None:
    """A Reject is a dead letter, a Retry has its delay, any other error follows the retry policy."""
    handler = Handler(naming({"a": Reject("no"), "b": Retry(after=30), "c": KeyError("c")}))
    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders(*"abcd")) == ["rejected", "retry", "retry", "applied"]
    verdicts = list(bench.result.verdicts.values())
    assert sorted(str(verdict.delay) for verdict in verdicts) == ["0:00:30", "None", "None", "None"]
    assert {verdict.reason for verdict in verdicts} >= {"no", "KeyError: 'c'"}


def test_all_may_be_named(engine: Engine) -> None:
    """Then nothing takes effect."""
    bench = UnitBench(engine, Handler(lambda at, _: Reject(f"number {at}")), UniqueKey)
    assert bench.run(*orders(*"abc")) == ["rejected"] * 3
    assert effects(engine) == []


def test_a_single_message_may_be_named(engine: Engine) -> None:
    """In a batch of one its position is 0."""
    bench = UnitBench(engine, Handler(lambda *_: Reject("no")), UniqueKey)
    assert bench.run(*orders("a")) == ["rejected"]


def test_errors_of_own_savepoints_are_named(engine: Engine) -> None:
    """A handler that inserts each message in a savepoint names those whose insert was refused."""

    def handler(batch: Batch[Order], session: Session) -> None:
        bad: dict[int, BaseException] = {}
        for at, order in enumerate(batch):
            give(session, order)
            session.flush()
            try:
                with session.begin_nested():
                    session.execute(text("INSERT INTO names (name) VALUES (:name)"), {"name": order["name"]})
            except IntegrityError as error:
                bad[at] = error
        if bad:
            raise BadItems(bad)

    bench = UnitBench(engine, handler)
    sent = [{**order, "name": "taken" if order["id"] == "b" else order["id"]} for order in orders(*"abc")]
    assert bench.run(*sent) == ["applied", "retry", "applied"]
    assert bench.errors() == ["UniqueViolation"]
    assert sorted(effects(engine)) == ["a", "c"]


def test_an_error_that_ended_the_transaction_is_looked_for(engine: Engine) -> None:
    """Outside of a savepoint the database may have lost the transaction, so the names prove nothing: the message is found alone."""

    def handler(batch: Batch[Order], session: Session) -> None:
        bad: dict[int, BaseException] = {}
        for at, order in enumerate(batch):
            give(session, order)
            try:
                session.flush()
                if order["id"] == "b":
                    session.execute(TAKE_THE_TAKEN)
            except Exception as error:
                bad[at] = error
        if bad:
            raise BadItems(bad)

    bench = UnitBench(engine, handler)
    assert bench.run(*orders(*"abcd")) == ["applied", "retry", "applied", "applied"]
    assert sorted(effects(engine)) == ["a", "c", "d"]
    assert bench.errors() == ["UniqueViolation"]


@pytest.mark.parametrize("named", ["b", "all"])
def test_a_lost_database_charges_no_message(engine: Engine, named: str) -> None:
    """Naming the messages that met it does not make it theirs; afterwards all take effect."""
    lost: list[str] = []

    def handler(batch: Batch[Order], session: Session) -> None:
        bad: dict[int, BaseException] = {}
        for at, order in enumerate(batch):
            give(session, order)
            if (order["id"] == "b" or lost) and not lost[1:]:
                lost.append(order["id"])
                with suppress(Exception):
                    session.flush()
                error = InfrastructureError("the database is away")
                if named == "all" or order["id"] == "b":
                    bad[at] = error
        if bad:
            raise BadItems(bad)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders(*"abc")) == ["applied"] * 3
    assert sorted(effects(engine)) == ["a", "b", "c"]
    assert bench.told == [1]


def test_a_lost_connection_charges_no_message(engine: Engine) -> None:
    """The unit runs again on another connection."""
    if engine.dialect.name == "sqlite":
        return
    lost: list[str] = []
    kill = "pg_terminate_backend(pg_backend_pid())" if engine.dialect.name == "postgresql" else "1"

    def handler(batch: Batch[Order], session: Session) -> None:
        bad: dict[int, BaseException] = {}
        for at, order in enumerate(batch):
            try:
                give(session, order)
                session.flush()
                if order["id"] == "b" and not lost:
                    lost.append("b")
                    session.execute(text(f"SELECT {kill}" if kill != "1" else "KILL CONNECTION_ID()"))
            except Exception as error:
                bad[at] = error
        if bad:
            raise BadItems(bad)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders(*"abc")) == ["applied"] * 3
    assert sorted(effects(engine)) == ["a", "b", "c"]


def test_a_refused_setting_makes_them_run_alone(engine: Engine) -> None:
    """A statement that others would notice is no failure of the message that sent it, also where it was named."""

    def handler(batch: Batch[Order], session: Session) -> None:
        bad: dict[int, BaseException] = {}
        for at, order in enumerate(batch):
            give(session, order)
            try:
                if order["id"] == "b":
                    session.execute(text("CREATE TEMPORARY TABLE seen_by_others (id INT)"))
            except NeedsIsolation as error:
                bad[at] = error
        if bad:
            raise BadItems(bad)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders(*"abc")) == ["applied"] * 3
    assert sorted(effects(engine)) == ["a", "b", "c"]


def test_a_late_call_is_charged_to_the_message_that_takes_long(engine: Engine) -> None:
    """Not to those that it named: their errors may come of the cancelled statement."""

    def handler(batch: Batch[Order], session: Session) -> None:
        for order in batch:
            give(session, order)
        if any(order["id"] == "slow" for order in batch):
            bench.slot.overdue = bench.slot.started
            raise BadItems(dict.fromkeys(range(len(batch)), ValueError("cancelled")))

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "slow", "b")) == ["applied", "retry", "applied"]
    assert bench.errors() == ["TimeLimitExceeded"]


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ({7: ValueError("x")}, "7"),
        ({-1: ValueError("x")}, "-1"),
        ({True: ValueError("x")}, "True"),
        ({"b": ValueError("x")}, "'b'"),
        ({0: "bad"}, "'bad'"),
        ({0: ValueError}, "ValueError"),
        ({}, "no message"),
        (None, "None"),
        ([ValueError("x")], "[ValueError('x')]"),
    ],
    ids=["far", "negative", "bool", "id", "text", "class", "empty", "none", "list"],
)
def test_a_wrong_name_is_said_and_every_message_is_kept(errors: Any, words: str, engine: Engine) -> None:
    """Positions outside of the batch, an empty mapping and values that are no errors are the handler's mistake."""

    def handler(batch: Batch[Order], session: Session) -> None:
        for order in batch:
            give(session, order)
        raise BadItems(errors)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders(*"abc")) == ["retry"] * 3
    assert effects(engine) == []
    for verdict in bench.result.verdicts.values():
        assert isinstance(verdict.error, HandlerFault)
        assert words in verdict.reason
        assert "BadItems" in verdict.reason


def test_an_odd_subclass_is_a_wrong_name(engine: Engine) -> None:
    """Its attribute raises instead of naming anything."""

    class Odd(BadItems):
        @property
        def errors(self) -> Any:
            raise RuntimeError("odd")

        @errors.setter
        def errors(self, _: Any) -> None:
            pass

    def handler(batch: Batch[Order]) -> None:
        raise Odd({0: ValueError(len(batch))})

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders(*"ab")) == ["retry"] * 2
    assert bench.errors() == ["HandlerFault"] * 2


@pytest.mark.parametrize("nested", [False, True], ids=["without-batch", "in-itself"])
def test_a_handler_without_batch_cannot_name_messages(engine: Engine, *, nested: bool) -> None:
    """Its error says what to write instead; the message is retried."""

    def single(_: Order) -> None:
        raise BadItems({0: Reject("no")})

    def batch(_: Batch[Order]) -> None:
        raise BadItems({0: BadItems({0: Reject("no")})})

    bench = UnitBench(engine, batch if nested else single, UniqueKey)
    assert bench.run(*orders("a")) == ["retry"]
    (verdict,) = bench.result.verdicts.values()
    assert (
        "names messages of a Batch, which this handler does not take: raise the error itself"
        in verdict.reason
    )
    assert isinstance(verdict.error, HandlerFault)


def test_an_async_handler_names_messages(engine: Engine) -> None:
    """As one that is a function does."""

    async def handler(batch: Batch[Order], session: AsyncSession) -> None:
        for order in batch:
            give(session.sync_session, order)
        await session.flush()
        bad: dict[int, BaseException] = {
            at: Reject("no") for at, order in enumerate(batch) if order["id"] == "b"
        }
        if bad:
            raise BadItems(bad)

    loop = Loop(engine)
    try:
        bench = UnitBench(engine, handler, UniqueKey, loop=loop)
        assert bench.run(*orders(*"abc")) == ["applied", "rejected", "applied"]
        assert sorted(effects(engine)) == ["a", "c"]
    finally:
        loop.close()


def test_what_the_first_try_published_is_not_sent(bench: Bench) -> None:
    """In a whole app: the outcomes are each message's own, effects and published messages are there once."""

    def handler(batch: Batch[Order], session: Session, publisher: Publisher) -> None:
        session.add_all([KitEffect(text=order["id"]) for order in batch])
        for order in batch:
            publisher.publish(shipped, order)
        bad: dict[int, BaseException] = {
            at: Reject("no such order") for at, order in enumerate(batch) if order["id"] == "b"
        }
        if bad:
            raise BadItems(bad)

    topic, shipped = bench.topic(), bench.topic("shipped")
    bench.consume(topic, handler, name="apply")
    bench.consume(shipped, _take, name="take")
    app = bench.start()
    outcomes = app.publish_many(topic, [{"id": name, "key": name} for name in "abc"])
    assert [outcome.status.value for outcome in outcomes] == ["applied", "dead letter", "applied"]
    assert outcomes[1].reason == "no such order"
    assert sorted(kit_effects(app)) == ["a", "c"]
    assert sorted(message.body["id"] for message in app.published(shipped)) == ["a", "c"]


def _take(_: Order, __: Session) -> None:
    """Do nothing."""
