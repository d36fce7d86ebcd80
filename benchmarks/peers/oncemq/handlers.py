"""The OnceMQ peer's handlers."""

import asyncio
import time
from functools import cache

from sqlalchemy import insert, update
from sqlalchemy.orm import Session

from benchmarks.peers.counting import counter
from benchmarks.peers.environment import effect_outside
from benchmarks.stage.tables import OrderPaid, Points, User
from oncemq import Batch


def award(order: OrderPaid, session: Session) -> None:
    """Give 30 points."""
    session.add(Points(order_id=order.order_id, user_id=order.user_id, points=30))


def award_many(orders: Batch[OrderPaid], session: Session) -> None:
    """Give 30 points for each."""
    rows = [{"order_id": order.order_id, "user_id": order.user_id, "points": 30} for order in orders]
    session.connection().execute(insert(Points), rows)


def add_to_user(order: OrderPaid, session: Session) -> None:
    """Add 30 to a row that many messages change."""
    more = update(User).where(User.user_id == order.user_id).values(points=User.points + 30)
    session.connection().execute(more)


def fail_early(order: OrderPaid, session: Session) -> None:
    """Fail before anything was written."""
    if order.amount < 0:
        raise ValueError("poison")
    award(order, session)


def fail_late(order: OrderPaid, session: Session) -> None:
    """Fail after writing."""
    award(order, session)
    if order.amount < 0:
        session.flush()
        raise ValueError("poison")


def empty(order: OrderPaid) -> None:
    """Do nothing."""


def count(order: OrderPaid) -> None:  # noqa: ARG001 - decoded, not read
    """Do nothing but count."""
    _counter()()


_counter = cache(counter)


async def io_async(order: OrderPaid) -> None:
    """Wait as for a web service, then have an effect."""
    await asyncio.sleep(0.02)
    effect_outside(order.order_id)


def io_sync(order: OrderPaid) -> None:
    """Wait as for a web service, then have an effect."""
    time.sleep(0.02)
    effect_outside(order.order_id)
