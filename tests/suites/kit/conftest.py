"""An app under the test kit, once on the broker in memory and once on RabbitMQ and PostgreSQL: every case must come out alike."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import String, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from oncemq import App
from oncemq.testing import TestApp
from support.database.databases import database, engine

__all__ = [
    "FAILED",
    "RETRY",
    "Base",
    "Bench",
    "Effect",
    "Ride",
    "adds",
    "bench",
    "database",
    "effects",
    "engine",
    "fails_once",
]

RETRY = {"attempts": 3, "backoff": {"first": "50ms", "factor": 1, "max": "50ms", "jitter": 0}}


class Base(DeclarativeBase):
    """The tables of the handlers."""


class Effect(Base):
    """One row for each time that a handler took effect."""

    __tablename__ = "effects"

    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str] = mapped_column(String(64))


class Ride(Base):
    """An entity whose version or state a strategy compares."""

    __tablename__ = "rides"

    ride_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    version: Mapped[int]
    state: Mapped[str] = mapped_column(String(64))


FAILED: set[str] = set()
"""What `fails_once` has failed for; a test empties it."""


def adds(body: dict[str, Any], session: Session) -> None:
    """Write an effect."""
    session.add(Effect(text=body["id"]))


def fails_once(body: dict[str, Any], session: Session) -> None:
    """Write an effect, and fail after that for each message's first try."""
    adds(body, session)
    session.flush()
    if body["id"] not in FAILED:
        FAILED.add(body["id"])
        raise ValueError("once")


class Bench:
    """Declares an app, and runs it.

    Args:
        brokers, database: of the app.
        real: whether these are used.
        stack: ends the app.

    Attributes:
        app: the app; add topics and consumers before `start`.
        failures: raised by `apply`, one for each call.
        effects: what direct handlers did, in order.
    """

    def __init__(self, brokers: dict[str, str], database: str, stack: ExitStack, *, real: bool) -> None:
        self.name = f"kit-{uuid4().hex[:8]}"
        self._places: dict[str, Any] = {"brokers": brokers, "database": database}
        self.renew()
        self.failures: list[Exception] = []
        self.effects: list[str] = []
        self._stack = stack
        self._real = real

    def renew(self, **settings: Any) -> None:
        """Replace the app by an empty one with further sections."""
        self.app = App(self.name, **self._places, defaults={"retry": RETRY}, **settings)

    def topic(self, name: str = "orders", **options: Any) -> str:
        """Declare a topic, which no other test uses; key `body.key`, identity `body.id` unless told otherwise."""
        own = f"{name}.{self.name}"
        options.setdefault("key", "body.key")
        options.setdefault("strategies", ["unique_key"])
        if options["strategies"] == ["unique_key"]:
            options.setdefault("identity", ["body.id"])
        self.app.topic(own, **options)
        return own

    def consume(self, topic: str, handler: Callable[..., Any], **options: Any) -> None:
        """Declare a consumer."""
        self.app.consumer(topic=topic, **options)(handler)

    def start(self) -> TestApp:
        """Run the app until the test ends."""
        return self._stack.enter_context(TestApp(self.app, tables=Base.metadata, real=self._real))

    def apply(self, body: dict[str, Any], session: Session) -> str:
        """Write an effect, unless a failure is ordered: then after writing."""
        session.add(Effect(text=str(body["id"])))
        session.flush()
        if self.failures:
            raise self.failures.pop(0)
        return f"did {body['id']}"

    def act(self, body: dict[str, Any]) -> str:
        """Do something outside of the database, unless a failure is ordered."""
        if self.failures:
            raise self.failures.pop(0)
        self.effects.append(str(body["id"]))
        return f"did {body['id']}"


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.server)])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Return a bench on the broker in memory and SQLite, then on RabbitMQ and PostgreSQL."""
    real = request.param == "real"
    rabbitmq = request.getfixturevalue("rabbitmq_url") if real else "amqp://localhost/"
    postgresql = request.getfixturevalue("postgresql_url") if real else "postgresql://localhost/none"
    with ExitStack() as stack:
        yield Bench({"main": rabbitmq}, postgresql, stack, real=real)


def effects(app: TestApp) -> list[str]:
    """Return the committed effects, in order."""
    with app.session() as session:
        return list(session.scalars(select(Effect.text).order_by(Effect.id)))
