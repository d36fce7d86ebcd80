"""Workers of an async handler with effects in the database: several units on one event loop, ended in order."""

import asyncio
import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncSession

from oncemq.engine.plan import ConsumerPlan
from oncemq.testing.scripted import ScriptedAdapter
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.effects import Effect, effects
from support.engine import make_app, make_consumer, running
from support.units import build


def body(name: str) -> bytes:
    """Return a message's body; each has its own key."""
    return json.dumps({"id": name, "key": name}).encode()


async def give(order: dict[str, Any], session: AsyncSession) -> None:
    """Leave the effect of `order`."""
    session.add(Effect(order_id=order["id"], key=order["key"]))


def consumer_of(engine: Engine, handler: Any, **fields: Any) -> ConsumerPlan:
    """Return a consumer with a name of its own, whose messages are applied once."""
    name = f"c{uuid4().hex[:8]}"
    return make_consumer(handler, [build(UniqueKey, engine, name)], name=name, **fields)


def settled(count: int) -> Any:
    """Return a condition for an adapter: so many messages are acknowledged."""
    return lambda adapter: len(adapter.acknowledged) >= count


def test_messages_are_applied_and_acknowledged(engine: Engine) -> None:
    """A copy is a duplicate."""
    adapter = ScriptedAdapter()
    consumer = consumer_of(engine, give)
    with running(make_app(adapter, engine, consumer)):
        for name in "aba":
            adapter.deliver(body(name))
        adapter.wait_until(settled(3))
    assert effects(engine) == ["a", "b"]


SERVERS = [pytest.param(name, marks=pytest.mark.server) for name in ("postgresql", "mariadb")]
"""SQLite has one writer at a time."""


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_units_of_several_workers_run_at_once(engine: Engine) -> None:
    """While one handler waits, another one runs on the same event loop and thread."""
    meet: dict[str, asyncio.Event] = {}
    threads: set[int] = set()

    async def handler(order: dict[str, Any], session: AsyncSession) -> None:
        await give(order, session)
        threads.add(threading.get_ident())
        mine = meet.setdefault(order["id"], asyncio.Event())
        other = meet.setdefault("b" if order["id"] == "a" else "a", asyncio.Event())
        mine.set()
        await other.wait()

    adapter = ScriptedAdapter()
    consumer = consumer_of(engine, handler, workers=2)
    with running(make_app(adapter, engine, consumer)):
        adapter.deliver(body("a"))
        adapter.deliver(body("b"))
        adapter.wait_until(settled(2))
    assert sorted(effects(engine)) == ["a", "b"]
    assert len(threads) == 1


def test_a_running_unit_is_finished_before_the_app_ends(engine: Engine) -> None:
    """Draining waits for the handler, and what it did is committed and acknowledged."""
    began, release = threading.Event(), threading.Event()

    async def handler(order: dict[str, Any], session: AsyncSession) -> None:
        await give(order, session)
        began.set()
        await asyncio.to_thread(release.wait, 20)

    adapter = ScriptedAdapter()
    consumer = consumer_of(engine, handler)
    with running(make_app(adapter, engine, consumer)) as app:
        adapter.deliver(body("a"))
        assert began.wait(20)
        app.stop()
        release.set()
    assert (effects(engine), len(adapter.acknowledged)) == (["a"], 1)


class _NoException(BaseException):
    """What `except Exception` lets through."""


def test_an_error_of_a_worker_ends_the_app(engine: Engine) -> None:
    """Its broker delivers the unsettled messages to another process; the other workers take no more."""

    def point(name: str) -> None:
        if name == "before-commit":
            raise _NoException

    adapter = ScriptedAdapter()
    consumer = consumer_of(engine, give, workers=2)
    with running(make_app(adapter, engine, consumer), point=point):
        adapter.deliver(body("a"))
        adapter.wait_until(lambda adapter: adapter.closed)
    assert (effects(engine), adapter.acknowledged) == ([], [])


def test_a_crash_suspect_does_not_block_the_loop(engine: Engine) -> None:
    """Two suspects run one after the other, although their workers share a thread."""
    adapter = ScriptedAdapter()
    consumer = consumer_of(engine, give, workers=3)
    with running(make_app(adapter, engine, consumer)) as app:
        for runtime in app._crews.values():
            runtime.consumer.intake.distrust_before = datetime.now(UTC) + timedelta(hours=1)
        for name in "abc":
            assert adapter.deliver(body(name), published_at=datetime.now(UTC)).suspect
        adapter.wait_until(settled(3))
    assert sorted(effects(engine)) == ["a", "b", "c"]
