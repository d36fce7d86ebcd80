"""Locks and semaphores as parameters of handlers, plain and async: names, owners, ends, and what is refused."""

import asyncio
import logging
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Annotated, Any

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from oncemq import App, Batch
from oncemq.errors import ConfigError
from oncemq.testing import TestApp
from oncemq_strategies.redisson import (
    ExpirableSemaphore,
    FairLock,
    FencedLock,
    Lock,
    ReadWriteLock,
    Semaphore,
)
from oncemq_strategies.redisson.handlers import arguments
from oncemq_strategies.redisson.read_write.locks import ReadLock


@pytest.fixture
def declare(tmp_path: Path, any_redis_url: str):
    """Return a function that makes an app with one consumer of `orders`."""

    def declare(handler: Any, *, redis: bool = True, **options: Any) -> App:
        found = {"redis": {"url": any_redis_url}} if redis else {}
        database = f"sqlite:///{tmp_path}/s.db"
        app = App("shop", brokers={"main": f"embedded:///{tmp_path}/b.db"}, database=database, **found)
        strategies = ["none"] if options.get("effects") == "external" else ["unique_key"]
        app.topic("orders", key="body.id", strategies=strategies)
        app.consumer(topic="orders", name="count", **options)(handler)
        return app

    return declare


def holds(made: Any) -> bool:
    """Return whether anyone has what a handler was given."""
    if isinstance(made, ReadWriteLock):
        return made.read.locked() or made.write.locked()
    return made.locked() if isinstance(made, Lock) else made.available() < 1


def test_a_lock_is_named_by_the_message_and_free_afterwards(declare, rival, fresh):
    """The template is that of redis_lock; another process is kept out while the handler has it."""
    seen = []

    def count(order: dict, lock: Annotated[Lock, f"{fresh}-{{body.sku}}-{{key}}"]) -> None:
        with lock, lock:
            seen.append((lock.name, lock.hold_count(), Lock(rival, lock.name).locked()))

    with TestApp(declare(count)) as app:
        assert app.publish("orders", {"id": 7, "sku": "tea"}).applied
    assert seen == [(f"{fresh}-tea-7", 2, True)]
    assert not Lock(rival, f"{fresh}-tea-7").locked()


@pytest.mark.parametrize("kind", [Lock, FairLock, FencedLock, ReadWriteLock, Semaphore, ExpirableSemaphore])
def test_every_kind_is_passed_to_plain_handlers(declare, fresh, kind):
    """And is used by `with` as elsewhere."""
    seen = []

    def count(order: dict, made: Annotated[kind, fresh, 1]) -> None:
        with made.write if kind is ReadWriteLock else made:
            seen.append(holds(made))
        seen.append(holds(made))

    with TestApp(declare(count)) as app:
        assert app.publish("orders", {"id": 1}).applied
    assert seen == [True, False]


@pytest.mark.parametrize("kind", [Lock, FairLock, FencedLock, ReadWriteLock, Semaphore, ExpirableSemaphore])
def test_every_kind_is_passed_to_async_handlers(declare, fresh, kind):
    """And is used by `async with`."""
    seen = []

    async def count(order: dict, made: Annotated[kind, fresh, 1]) -> None:
        async with made.write if kind is ReadWriteLock else made:
            seen.append(await asyncio.to_thread(holds, made))
        seen.append(await asyncio.to_thread(holds, made))

    with TestApp(declare(count, effects="external")) as app:
        assert app.publish("orders", {"id": 1}).applied
    assert seen == [True, False]


@pytest.mark.parametrize("kind", [Lock, ReadWriteLock, Semaphore, ExpirableSemaphore])
def test_what_a_plain_handler_leaves_locked_is_released_and_said(declare, fresh, caplog, kind):
    """Also by one that fails, and for many messages in one line a minute."""

    def count(order: dict, made: Annotated[kind, fresh, 1]) -> None:
        assert (made.read if kind is ReadWriteLock else made).acquire(wait=timedelta(0))
        if order["id"] == 2:
            raise ValueError("no")

    with caplog.at_level(logging.WARNING), TestApp(declare(count, retry={"attempts": 1})) as app:
        outcomes = [app.publish("orders", {"id": number}) for number in (1, 2, 3)]
    assert [outcome.applied for outcome in outcomes] == [True, False, True]
    (line,) = [record.getMessage() for record in caplog.records if record.name == arguments.__name__]
    assert "count ended and left its parameter 'made' locked" in line
    assert fresh in line
    assert "(1 times since" in line


def test_what_an_async_handler_leaves_locked_is_released_and_said(declare, fresh, caplog, rival):
    """As for a plain one."""

    async def count(order: dict, lock: Annotated[Lock, fresh]) -> None:
        assert await lock.acquire_async()
        assert await lock.acquire_async()

    with caplog.at_level(logging.WARNING), TestApp(declare(count, effects="external")) as app:
        assert app.publish("orders", {"id": 1}).applied
    (line,) = [record.getMessage() for record in caplog.records if record.name == arguments.__name__]
    assert "held 2 times" in line
    assert not Lock(rival, fresh).locked()


def test_a_lock_that_was_lost_in_the_handler_has_its_message_tried_again(declare, client, fresh):
    """Its effects may not rest on a lock that another had: the transaction is rolled back."""
    tries = []

    def count(order: dict, lock: Annotated[Lock, fresh]) -> None:
        with lock:
            tries.append(order["id"])
            if len(tries) == 1:
                client.command("DEL", fresh, key=fresh)

    with TestApp(declare(count)) as app:
        outcome = app.publish("orders", {"id": 1})
        assert (outcome.retried, "was lost" in str(outcome)) == (True, True)
        assert app.redeliver(outcome).applied
    assert tries == [1, 1]


def test_an_async_handler_with_a_session_has_locks_too(declare, fresh, rival):
    """In its transaction, and beside its statements."""
    seen = []

    async def count(order: dict, session: AsyncSession, lock: Annotated[Lock, fresh]) -> None:
        async with lock:
            seen.append(await session.scalar(select(1)))
            seen.append(await asyncio.to_thread(Lock(rival, fresh).locked))

    with TestApp(declare(count)) as app:
        assert app.publish("orders", {"id": 1}).applied
    assert (seen, Lock(rival, fresh).locked()) == ([1, True], False)


def test_messages_on_one_event_loop_exclude_each_other(declare, fresh):
    """Each call is an owner, though one thread runs them all; who waits lets the others go on."""
    inside, most, done, enough = 0, 0, [], Event()

    async def count(order: dict, lock: Annotated[Lock, fresh]) -> None:
        nonlocal inside, most
        async with lock:
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1
        done.append(order["id"])
        if len(done) == 20:
            enough.set()

    app = declare(count, effects="external", workers=20)
    app.create_tables()
    app.start()
    try:
        for number in range(20):
            app.publish("orders", {"id": number})
        assert enough.wait(60)
    finally:
        assert app.stop() == 0
    assert (most, sorted(done)) == (1, list(range(20)))


def test_a_handler_that_waits_does_not_stop_its_neighbours(declare, rival, fresh):
    """More messages wait for a lock that a Java service has than there are threads; one that does not want it runs."""
    held, ran, waited = Lock(rival, f"{fresh}-held"), Event(), []

    async def count(order: dict, lock: Annotated[Lock, f"{fresh}-{{body.lock}}"]) -> None:
        async with lock:
            waited.append(order["id"])
        if order["lock"] == "free":
            ran.set()

    app = declare(count, effects="external", workers=20)
    app.create_tables()
    held.acquire()
    app.start()
    try:
        for number in range(12):
            app.publish("orders", {"id": number, "lock": "held"})
        app.publish("orders", {"id": 12, "lock": "free"})
        assert ran.wait(30)
        assert waited == [12]
        held.release()
    finally:
        assert app.stop() == 0


@pytest.mark.parametrize("kind", [Lock, Semaphore, ExpirableSemaphore])
def test_an_async_handler_may_not_block_its_loop(declare, fresh, kind):
    """A plain `with` could wait for a lock of the same loop for ever: it is refused in words."""

    async def count(order: dict, made: Annotated[kind, fresh]) -> None:
        with made:
            raise AssertionError("unreachable")

    with TestApp(declare(count, effects="external", retry={"attempts": 1})) as app:
        outcome = app.publish("orders", {"id": 1})
    assert outcome.dead_letter
    assert "write async with" in str(outcome.reason)


def test_a_name_without_its_value_is_the_messages_fault(declare, fresh):
    """It is a dead letter at once, and the handler does not run."""

    def count(order: dict, lock: Annotated[Lock, f"{fresh}-{{body.sku}}"]) -> None:
        raise AssertionError("unreachable")

    with TestApp(declare(count)) as app:
        outcome = app.publish("orders", {"id": 1})
    assert outcome.dead_letter
    assert "body.sku" in str(outcome.reason)


def nameless(order: dict, lock: Lock) -> None:
    """Say no name."""


def misspelled(order: dict, lock: Annotated[Lock, "stock-{"]) -> None:
    """Say no name that can be read."""


def halved(order: dict, lock: Annotated[ReadLock, "stock"]) -> None:
    """Want half of a lock."""


def batched(orders: Batch[dict], lock: Annotated[Lock, "stock"]) -> None:
    """Want one lock for many messages."""


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (nameless, "has no name: write Annotated[Lock, "),
        (misspelled, "has the name 'stock-{'"),
        (halved, "is half of a lock: write Annotated[ReadWriteLock"),
        (batched, "would be one value for many messages"),
    ],
)
def test_a_parameter_that_cannot_be_filled_is_refused_at_start(declare, handler, text):
    """With what to write instead."""
    with pytest.raises(ConfigError) as error:
        declare(handler).plan()
    assert text in str(error.value)


def test_a_lock_without_redis_is_refused_at_start(declare, fresh):
    """With what to write."""

    def count(order: dict, lock: Annotated[Lock, fresh]) -> None: ...

    with pytest.raises(ConfigError, match="needs Redis: give the app redis:"):
        declare(count, redis=False).plan()


def test_a_lock_is_for_handlers_only(declare, fresh):
    """A function for dead letters cannot have one, and says so."""

    def count(order: dict) -> None: ...

    def dead(order: dict, lock: Annotated[Lock, fresh]) -> None: ...

    with pytest.raises(ConfigError, match="is passed to handlers only"):
        declare(count, on_dead=dead).plan()
