"""An async handler's AsyncSession: what it writes is in the unit's transaction, and what a sync handler may not do it may not do."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from oncemq import Batch
from oncemq.errors import Retry
from oncemq.testing.event_loop import Loop
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.effects import TAKE_THE_TAKEN, Effect, effects
from support.units import UnitBench, orders

Misdeed = Callable[[AsyncSession], Awaitable[object]]


def give(session: AsyncSession, order: dict[str, Any]) -> None:
    """Leave the effect of `order`."""
    session.add(Effect(order_id=order["id"], key=order["key"]))


def bench_with(engine: Engine, loop: Loop, misdeed: Misdeed, *, at: str = "b", **options: Any) -> UnitBench:
    """Return a bench whose handler writes, and for the order `at` does `misdeed` afterwards."""

    async def handler(order: dict[str, Any], session: AsyncSession) -> None:
        give(session, order)
        if order["id"] == at:
            await misdeed(session)

    return UnitBench(engine, handler, UniqueKey, loop=loop, **options)


async def _nothing(session: AsyncSession) -> None:
    """Do nothing."""


def test_effects_and_records_are_committed_together(engine: Engine, loop: Loop) -> None:
    """A message that comes again is a duplicate."""
    bench = bench_with(engine, loop, _nothing)
    assert bench.run(*orders("a", "b", "a")) == ["applied", "applied", "duplicate"]
    assert bench.run(*orders("b", "c")) == ["duplicate", "applied"]
    assert effects(engine) == ["a", "b", "c"]


def test_it_reads_what_earlier_messages_wrote(engine: Engine, loop: Loop) -> None:
    """Messages of a unit run one after another, as if each had a transaction of its own."""
    seen: list[int] = []

    async def handler(order: dict[str, Any], session: AsyncSession) -> None:
        seen.append(len((await session.scalars(select(Effect))).all()))
        give(session, order)

    bench = UnitBench(engine, handler, UniqueKey, loop=loop)
    assert bench.run(*orders("a", "b", "c")) == ["applied"] * 3
    assert seen == [0, 1, 2]


def test_a_batch_handler_may_be_async(engine: Engine, loop: Loop) -> None:
    """It is called once for the messages of a unit."""
    sizes: list[int] = []

    async def handler(batch: Batch[dict], session: AsyncSession) -> None:
        sizes.append(len(batch))
        for order in batch:
            give(session, order)
        await session.flush()

    bench = UnitBench(engine, handler, UniqueKey, loop=loop)
    assert bench.run(*orders("a", "b", "c")) == ["applied"] * 3
    assert (sizes, effects(engine)) == ([3], ["a", "b", "c"])


def test_a_savepoint_of_the_handler_may_fail(engine: Engine, loop: Loop) -> None:
    """What it wrote before the savepoint is committed."""

    async def handler(order: dict[str, Any], session: AsyncSession) -> None:
        give(session, order)
        await session.flush()
        try:
            async with session.begin_nested():
                await session.execute(TAKE_THE_TAKEN)
        except IntegrityError:
            give(session, {**order, "id": "instead"})

    bench = UnitBench(engine, handler, UniqueKey, loop=loop)
    assert bench.run(*orders("a")) == ["applied"]
    assert effects(engine) == ["a", "instead"]


def test_commit_flushes(engine: Engine, loop: Loop) -> None:
    """The framework commits; a later failure takes everything back."""

    async def handler(order: dict[str, Any], session: AsyncSession) -> None:
        async with session:
            give(session, order)
            await session.commit()
        raise Retry("later")

    bench = UnitBench(engine, handler, UniqueKey, loop=loop)
    assert bench.run(*orders("a")) == ["retry"]
    assert effects(engine) == []


async def _gather(session: AsyncSession) -> None:
    await asyncio.gather(session.execute(text("SELECT 1")), session.execute(text("SELECT 2")))


async def _thread(session: AsyncSession) -> None:
    await asyncio.to_thread(session.sync_session.execute, text("SELECT 1"))


async def _connection_commit(session: AsyncSession) -> None:
    await (await session.connection()).commit()


async def _gather_on_the_connection(session: AsyncSession) -> None:
    connection = await session.connection()
    await asyncio.gather(connection.execute(text("SELECT 1")), connection.execute(text("SELECT 2")))


async def _close_quietly(session: AsyncSession) -> None:
    await asyncio.gather(session.close(), return_exceptions=True)


REFUSED: dict[str, Misdeed] = {
    "rollback": lambda session: session.rollback(),
    "close": lambda session: session.close(),
    "close, swallowed": _close_quietly,
    "begin": lambda session: session.begin().start(),
    "invalidate": lambda session: session.invalidate(),
    "COMMIT": lambda session: session.execute(text("COMMIT")),
    "the connection's commit": _connection_commit,
    "a savepoint left open": lambda session: session.begin_nested().start(),
    "gather": _gather,
    "gather on the connection": _gather_on_the_connection,
    "another thread": _thread,
}


@pytest.mark.parametrize("misdeed", REFUSED.values(), ids=REFUSED)
def test_a_misuse_of_the_session_is_charged_to_its_message_alone(
    engine: Engine, loop: Loop, misdeed: Misdeed
) -> None:
    """Nothing of the message stays, and its neighbours take effect."""
    bench = bench_with(engine, loop, misdeed)
    assert bench.run(*orders("a", "b", "c")) == ["applied", "retry", "applied"]
    assert bench.errors() in (["SessionOwned"], ["HandlerFault"])
    assert effects(engine) == ["a", "c"]


def test_a_task_that_the_handler_left_running_cannot_use_the_session(engine: Engine, loop: Loop) -> None:
    """The message whose handler did not wait for its task is charged; the others are applied."""
    ends: list[BaseException | None] = []
    left: set[asyncio.Task[None]] = set()

    async def later(session: AsyncSession, order: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        give(session, order)

    async def handler(order: dict[str, Any], session: AsyncSession) -> None:
        if order["id"] == "b":
            task = asyncio.create_task(later(session, order))
            task.add_done_callback(lambda task: ends.append(task.exception()))
            left.add(task)
            return
        give(session, order)
        for _ in range(3):
            await asyncio.sleep(0)

    bench = UnitBench(engine, handler, UniqueKey, loop=loop)
    assert bench.run(*orders("a", "b", "c")) == ["applied", "retry", "applied"]
    assert (bench.errors(), effects(engine)) == (["SessionOwned"], ["a", "c"])
    assert "after its handler had returned" in str(ends[0])


async def _cancel_itself(_session: AsyncSession) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def _cancel_in_a_statement(session: AsyncSession) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await session.execute(text("SELECT 1"))


@pytest.mark.parametrize("cancel", [_cancel_itself, _cancel_in_a_statement])
def test_a_cancelled_handler_is_charged_alone(engine: Engine, loop: Loop, cancel: Misdeed) -> None:
    """The transaction is rolled back where it must be, and the worker goes on."""
    bench = bench_with(engine, loop, cancel)
    assert bench.run(*orders("a", "b", "c")) == ["applied", "retry", "applied"]
    assert (bench.errors(), effects(engine)) == (["CancelledError"], ["a", "c"])


def test_a_cancellation_that_the_handler_left_behind_ends_with_it(engine: Engine, loop: Loop) -> None:
    """Its own task is the worker's: what comes after the handler is not cancelled."""

    async def leave_it(_session: AsyncSession) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    bench = bench_with(engine, loop, leave_it)
    assert bench.run(*orders("a", "b", "c")) == ["applied"] * 3
    assert effects(engine) == ["a", "b", "c"]


async def _wait(_session: AsyncSession) -> None:
    await asyncio.sleep(60)


async def _wait_in_the_database(session: AsyncSession) -> None:
    name = session.get_bind().dialect.name
    if name == "sqlite":
        await asyncio.sleep(60)
    await session.execute(text("SELECT pg_sleep(60)" if name == "postgresql" else "SELECT SLEEP(60)"))


@pytest.mark.parametrize("wait", [_wait, _wait_in_the_database])
def test_the_soft_limit_cancels_a_handler(engine: Engine, loop: Loop, wait: Misdeed) -> None:
    """Also in a statement; its neighbours take effect."""
    bench = bench_with(engine, loop, wait, soft_limit=timedelta(seconds=0.1))
    assert bench.run(*orders("a", "b", "c")) == ["applied", "retry", "applied"]
    assert (bench.errors(), effects(engine)) == (["TimeLimitExceeded"], ["a", "c"])


def test_a_swallowed_error_of_the_database_dooms_the_run(engine: Engine, loop: Loop) -> None:
    """On PostgreSQL the transaction is lost; elsewhere only the statement was, and the rest is committed."""

    async def swallow(session: AsyncSession) -> None:
        try:
            await session.execute(TAKE_THE_TAKEN)
        except IntegrityError:
            return

    bench = bench_with(engine, loop, swallow)
    lost = engine.dialect.name == "postgresql"
    assert bench.run(*orders("a", "b", "c")) == ["applied", "retry" if lost else "applied", "applied"]
    assert effects(engine) == (["a", "c"] if lost else ["a", "b", "c"])
