"""Sessions of async handlers: an AsyncSession, over the session of the call."""

import asyncio
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from oncemq import Batch
from oncemq.contracts.checks import Effects
from oncemq.contracts.unit import Item, Run, Unit
from oncemq.errors import ConfigError
from oncemq.handler.binding import BoundHandler, bind
from oncemq.message.envelope import Delivery, Message


def bound(function: Any, effects: Effects = Effects.DATABASE) -> BoundHandler:
    """Bind a handler."""
    return bind(function, name="shop:award", provided={}, effects=effects)


def refusal(function: Any, effects: Effects = Effects.DATABASE) -> str:
    """Return why a handler cannot be called."""
    with pytest.raises(ConfigError) as caught:
        bound(function, effects)
    return str(caught.value)


def run_of(items: list[Item]) -> Run:
    """Return a run with a session."""
    return Run(Unit("app.consumer", [Delivery(Message("orders", b"{}"))], 0.0), items, None, Session())


def test_an_async_handler_takes_an_async_session() -> None:
    """It is over the session of the call, and its effects are in the database."""

    async def handler(order: Any, session: AsyncSession) -> Session:
        return session.sync_session

    made, run = bound(handler), run_of([])
    assert (made.is_async, made.wants_session) == (True, True)
    assert asyncio.run(made.call(run, _Item())) is run.session


def test_an_async_batch_handler_takes_one_too() -> None:
    """One call, one session."""

    async def handler(orders: Batch[Any], session: AsyncSession) -> Session:
        return session.sync_session

    made, run = bound(handler), run_of([])
    assert (made.is_async, made.is_batch) == (True, True)
    assert made.call_batch is not None
    assert asyncio.run(made.call_batch(run, [])) is run.session


class _Item:
    """What a handler call reads of an item."""

    payload: Any = None


def test_a_session_of_the_other_kind_is_refused() -> None:
    """A Session would block the event loop, and an AsyncSession needs one."""

    async def waits(order: Any, session: Session) -> None: ...

    def blocks(order: Any, session: AsyncSession) -> None: ...

    async def outside(order: Any, session: AsyncSession) -> None: ...

    assert "write sqlalchemy.ext.asyncio.AsyncSession" in refusal(waits)
    assert "or async def if it is AsyncSession" in refusal(blocks)
    assert "is AsyncSession, but its effects are external" in refusal(outside, Effects.EXTERNAL)
