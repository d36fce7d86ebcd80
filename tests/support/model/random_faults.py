"""Everything that handlers have been seen to do wrong, and a handler that does it to order."""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlalchemy import Integer, String, insert, select, text, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Mapped, Session, mapped_column

from oncemq.errors import InfrastructureError, Reject, Retry
from support.effects import TAKE_THE_TAKEN, Base, Effect, Name, Shared

Order = dict[str, Any]
Fault = Callable[[Order, Session], None]


class Ride(Base):
    """An entity whose state the strategy keeps in this table."""

    __tablename__ = "rides"
    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    status: Mapped[str | None] = mapped_column(String(20))
    effects: Mapped[int] = mapped_column(Integer, default=0)


class Bad(Exception):
    """What failing handlers raise."""


def _raise(error: BaseException) -> None:
    raise error


def _swallow(order: Order, session: Session) -> None:
    with suppress(SQLAlchemyError):
        session.execute(TAKE_THE_TAKEN)


def _swallow_flush(order: Order, session: Session) -> None:
    with suppress(SQLAlchemyError):
        session.add(Name(name="taken"))
        session.flush()


def _swallow_autoflush(order: Order, session: Session) -> None:
    session.add(Name(name="taken"))
    with suppress(SQLAlchemyError):
        session.scalars(select(Effect.id).limit(1)).all()


def _write_and_raise(order: Order, session: Session) -> None:
    session.execute(insert(Effect).values(order_id="BAD", key=order["key"], attempt=0))
    _raise(Bad("after a statement"))


def _read_and_raise(order: Order, session: Session) -> None:
    session.scalars(select(Effect.id).limit(1)).all()
    _raise(Bad("after a query"))


def _change_and_raise(order: Order, session: Session) -> None:
    session.get_one(Shared, 3).points += 1000
    _raise(Bad("after a change"))


def _close_quietly(order: Order, session: Session) -> None:
    with suppress(Exception):
        session.close()


def _commit_quietly(order: Order, session: Session) -> None:
    with suppress(Exception):
        session.connection().commit()


def _poison_and_read(order: Order, session: Session) -> None:
    session.add(Name(name="taken"))
    session.scalars(select(Effect.id).limit(1)).all()


def _own_savepoint(order: Order, session: Session) -> None:
    with suppress(SQLAlchemyError), session.begin_nested():
        session.execute(TAKE_THE_TAKEN)


def _own_savepoint_flush(order: Order, session: Session) -> None:
    with suppress(SQLAlchemyError), session.begin_nested():
        session.add(Name(name="taken"))
        session.flush()


BEFORE: dict[str, Fault] = {
    "raise": lambda order, session: _raise(Bad("before anything")),
    "retry": lambda order, session: _raise(Retry("again")),
    "reject": lambda order, session: _raise(Reject("no")),
    "read": _read_and_raise,
    "write": _write_and_raise,
    "change": _change_and_raise,
    "exit": lambda order, session: _raise(SystemExit(1)),
    "open savepoint": lambda order, session: session.begin_nested() and None,
    "open savepoint, retry": lambda order, session: session.begin_nested() and _raise(Retry("again")),
}
"""Done before the effect; each costs its message an attempt, or the dead-letter place."""

AFTER: dict[str, Fault] = {
    "raise late": lambda order, session: _raise(Bad("after everything")),
    "retry late": lambda order, session: _raise(Retry("again")),
    "swallow": _swallow,
    "swallow a flush": _swallow_flush,
    "swallow an autoflush": _swallow_autoflush,
    "rollback": lambda order, session: session.rollback(),
    "close": lambda order, session: session.close(),
    "close quietly": _close_quietly,
    "connection.commit": _commit_quietly,
    "connection.rollback": lambda order, session: session.connection().rollback(),
    "COMMIT": lambda order, session: session.execute(text("/* */ COMMIT")) and None,
    "poison": lambda order, session: session.add(Name(name="taken")),
    "poison and read": _poison_and_read,
    "expunge_all": lambda order, session: session.expunge_all(),
}
"""Done after the effect; each costs its message an attempt."""

HARMLESS: dict[str, Fault] = {
    "commit": lambda order, session: session.commit(),
    "own savepoint": _own_savepoint,
    "own savepoint, flush": _own_savepoint_flush,
    "nested block": lambda order, session: session.begin_nested().commit(),
}
"""Done after the effect; they cost nothing."""

EXPIRE_ALL = "expire_all"
"""Done before the effect, when only neighbours' changes can be discarded by it; costs nothing."""

INFRASTRUCTURE = "infrastructure"
"""Done before the effect, for the first times that a message runs; no one's fault."""

STYLES = ("orm", "core", "reading", "shared", "change")


class FaultyHandler:
    """Leaves one effect for each order, and does the faults that the order names for this attempt.

    Args:
        with_ride: the order's entity has a row, which the handler creates.
        many: it is called for many orders at once, so that what it discards is its own.
    """

    def __init__(self, *, with_ride: bool, many: bool) -> None:
        self._many = many
        self._with_ride = with_ride
        self._troubled: Counter[str] = Counter()

    def __call__(self, order: Order, attempt: int, session: Session) -> None:
        """Handle one order."""
        faults = order["faults"]
        fault = faults[attempt - 1] if attempt <= len(faults) else ""
        if fault == INFRASTRUCTURE:
            self._troubled[order["tag"]] += 1
            if self._troubled[order["tag"]] <= 2:
                raise InfrastructureError("the database is busy")
        if fault == EXPIRE_ALL and not self._many:
            session.expire_all()
        if fault in BEFORE:
            BEFORE[fault](order, session)
        self._ride(order, session)
        self._effect(order, attempt, session)
        (AFTER | HARMLESS).get(fault, lambda *_: None)(order, session)

    def _ride(self, order: Order, session: Session) -> None:
        if not self._with_ride:
            return
        ride = session.get(Ride, order["key"])
        if ride is None:
            session.add(Ride(key=order["key"], effects=1))
        else:
            ride.effects += 1

    def _effect(self, order: Order, attempt: int, session: Session) -> None:
        style, values = order["style"], {"order_id": order["id"], "key": order["key"], "attempt": attempt}
        if style == "core":
            session.execute(insert(Effect).values(**values))
            return
        if style == "reading":
            session.scalars(select(Effect.id).where(Effect.key == order["key"]).limit(1)).all()
        elif style == "shared":
            rows = random.Random(order["tag"]).sample([1, 2], 2)
            for number in rows:
                session.execute(update(Shared).where(Shared.id == number).values(points=Shared.points + 1))
        elif style == "change":
            session.get_one(Shared, 4, with_for_update=True).points += 1
        session.add(Effect(**values))
