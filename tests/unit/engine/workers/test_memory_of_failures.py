"""A failed message leaves memory when it is settled, not when Python's collector next looks for cycles."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from oncemq import Batch
from oncemq.contracts.checks import Effects
from oncemq.errors import Reject
from oncemq.ledger.database.engine import make_engine
from oncemq.retry.backoff import RetryPolicy
from oncemq.testing.scripted import ScriptedAdapter
from support.engine import make_app, make_consumer, running
from support.patience import PATIENCE

WAIT = 20.0 * PATIENCE
WRITE = text("INSERT INTO given VALUES (1)")
WRONG = text("INSERT INTO given VALUES (NULL)")


@dataclass
class Order:
    """What a handler gets; one object for each call."""

    id: str
    key: str


@pytest.fixture(autouse=True)
def uncollected() -> Iterator[None]:
    """Turn Python's search for cycles off."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def engine(sqlite_database: str) -> Iterator[Engine]:
    """A database with a table of ids."""
    engine = make_engine(sqlite_database)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE given (id INTEGER NOT NULL)"))
    yield engine
    engine.dispose()


class Freed:
    """Sees when the objects of handler calls are freed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._alive: list[weakref.ref[Order]] = []
        self.calls = 0

    def watch(self, order: Order) -> None:
        """Watch a call's object."""
        with self._changed:
            self.calls += 1
            self._alive.append(weakref.ref(order, self._gone))

    def _gone(self, gone: "weakref.ref[Order]") -> None:
        with self._changed:
            self._alive.remove(gone)
            self._changed.notify_all()

    def all(self, calls: int) -> bool:
        """Wait until so many calls have been made, and all their objects are freed; returns whether they were."""
        with self._changed:
            return self._changed.wait_for(lambda: self.calls >= calls and not self._alive, WAIT)


def _fail(why: str) -> None:
    if why == "reject":
        raise Reject("never")
    if why == "chained":
        try:
            raise KeyError(why)  # noqa: TRY301 - the cause of another
        except KeyError as error:
            raise ValueError(why) from error
    raise ValueError(why)


def _at_once(freed: Freed, why: str) -> Callable[..., Any]:
    def handle(order: Order) -> None:
        freed.watch(order)
        _fail(why)

    return handle


def _after_writing(freed: Freed, why: str) -> Callable[..., Any]:
    def handle(order: Order, session: Session) -> None:
        freed.watch(order)
        session.execute(WRITE)
        _fail(why)

    return handle


def _by_a_statement(freed: Freed, _why: str) -> Callable[..., Any]:
    def handle(order: Order, session: Session) -> None:
        freed.watch(order)
        session.execute(WRITE)
        session.execute(WRONG)

    return handle


def _async(freed: Freed, why: str) -> Callable[..., Any]:
    async def handle(order: Order) -> None:
        freed.watch(order)
        _fail(why)

    return handle


def _async_after_writing(freed: Freed, why: str) -> Callable[..., Any]:
    async def handle(order: Order, session: AsyncSession) -> None:
        freed.watch(order)
        await session.execute(WRITE)
        _fail(why)

    return handle


def _batch(freed: Freed, why: str) -> Callable[..., Any]:
    def handle(orders: Batch[Order], session: Session) -> None:
        for order in orders:
            freed.watch(order)
        session.execute(WRITE)
        _fail(why)

    return handle


HANDLERS = {
    "at-once": (_at_once, Effects.DATABASE),
    "after-writing": (_after_writing, Effects.DATABASE),
    "by-a-statement": (_by_a_statement, Effects.DATABASE),
    "async-after-writing": (_async_after_writing, Effects.DATABASE),
    "batch": (_batch, Effects.DATABASE),
    "external": (_at_once, Effects.EXTERNAL),
    "async-external": (_async, Effects.EXTERNAL),
}


@pytest.mark.parametrize("why", ["retry", "reject", "chained"])
@pytest.mark.parametrize("kind", HANDLERS)
def test_a_failed_message_is_freed_when_it_is_settled(kind: str, why: str, engine: Engine) -> None:
    """Its error refers to the frames of its call, and they to the error: without a cut they live until the next full collection."""
    make, effects = HANDLERS[kind]
    freed = Freed()
    adapter = ScriptedAdapter()
    consumer = make_consumer(make(freed, why), effects=effects)
    with running(make_app(adapter, engine, consumer)):
        adapter.deliver(b'{"id": "a", "key": "k"}')
        assert freed.all(1)
    assert adapter.retried or adapter.dead


@pytest.mark.parametrize("kind", HANDLERS)
def test_a_message_that_is_tried_again_at_once_is_freed(kind: str, engine: Engine) -> None:
    """`retry: immediate` settles its first failure by another try."""
    make, effects = HANDLERS[kind]
    freed = Freed()
    adapter = ScriptedAdapter()
    consumer = make_consumer(
        make(freed, "retry"), effects=effects, retry=RetryPolicy(attempts=3, immediate=2)
    )
    with running(make_app(adapter, engine, consumer)):
        adapter.deliver(b'{"id": "a", "key": "k"}')
        assert freed.all(3)
