"""A history played on the real engine and a real database, by processes that die and a broker that shuffles."""

import json
import random
import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, delete, insert, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from oncemq import Done, NotDone
from oncemq.contracts.checks import Effects
from oncemq.errors import Reject
from oncemq.ledger.messages import parking
from oncemq.ledger.records import claims, history, processed, sequences, states
from oncemq.ledger.records import row_mutexes as locked_rows
from oncemq.message.envelope import Envelope, Message
from oncemq.redis import RedisClient
from oncemq.testing.fake_clock import FakeClock
from oncemq.testing.strategy_suite.effects import Name
from support.effects import Base, Effect, empty
from support.model.broker import ModelBroker
from support.model.histories import KNOW_COPIES, OUTSIDE, Ends, History, options_of
from support.model.process import CONSUMER, Bad, Killed, Process, Told

LEDGER = (
    processed.TABLE,
    states.TABLE,
    sequences.TABLE,
    parking.TABLE,
    history.TABLE,
    locked_rows.TABLE,
    claims.TABLE,
)
_ROUNDS = 80
_PATIENT = 20
_POINTS = {"before": "before-commit", "after": "committed"}


class HistoryRow(Base):
    """What a key names, where a strategy keeps versions in the user's table."""

    __tablename__ = "history_rows"
    name: Mapped[str] = mapped_column(Name, primary_key=True)
    version: Mapped[int | None]
    place: Mapped[int | None]
    other_version: Mapped[int | None]
    other_place: Mapped[int | None]


OTHER = "other_"
"""What the names of a second consumer's columns begin with, and its effects."""


def act(body: dict[str, Any], envelope: Envelope, session: Session, own: str = "") -> None:
    """Do what the message says for this attempt, after writing."""
    does = body["does"]
    session.add(Effect(order_id=f"{own}{envelope.identity}", key=body["key"], attempt=envelope.attempt))
    row = session.get(HistoryRow, body["key"])
    if row is None:
        row = HistoryRow(name=body["key"])
        session.add(row)
    setattr(row, f"{own}place", body["place"])
    session.flush()
    if envelope.attempt <= len(does) and does[envelope.attempt - 1] != "add":
        if does[envelope.attempt - 1] == "reject":
            raise Reject("no")
        raise Bad("not this time")


class Outside:
    """A handler whose effect is committed elsewhere, and what answers for it.

    Args:
        engine: where its effects are seen.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def act(self, body: dict[str, Any], envelope: Envelope) -> None:
        """Do what the message says for this attempt."""
        does = body["does"][envelope.attempt - 1] if envelope.attempt <= len(body["does"]) else "add"
        if does == "reject":
            raise Reject("no")
        if does != "add":
            raise Bad("not this time")
        effect = {"order_id": envelope.identity, "key": body["key"], "attempt": envelope.attempt}
        with self._engine.begin() as connection:
            connection.execute(insert(Effect).values(**effect))

    def verify(self, envelope: Envelope) -> Done | NotDone:
        """Say whether a message's effect has happened."""
        with self._engine.connect() as connection:
            found = connection.scalar(select(Effect.id).where(Effect.order_id == envelope.identity))
        return NotDone() if found is None else Done()


def act_besides(body: dict[str, Any], envelope: Envelope, session: Session) -> None:
    """Do the same as another consumer."""
    act(body, envelope, session, OTHER)


class HistoryLife:
    """The life of one consumer through one history.

    Args:
        engine: a database with all tables.
        played: the history.
        chain: the strategies' names, in order.
        hold_key: keys wait while one of their messages is tried again.
        own: empty for the first consumer of the messages, `OTHER` for the second.
        redis: for chains that need it; what they leave there is named after the history.
    """

    def __init__(
        self,
        engine: Engine,
        played: History,
        chain: Sequence[str],
        *,
        hold_key: bool,
        own: str = "",
        redis: RedisClient | None = None,
    ) -> None:
        self._engine = engine
        self._history = played
        self._own = own
        self._redis = redis
        self._name = f"{own}{CONSUMER}" if redis is None else f"{CONSUMER}{uuid.uuid4().hex[:8]}"
        self._outside = Outside(engine) if chain in OUTSIDE else None
        self._chain = [(name, dict(options_of(name, own))) for name in chain]
        if self._outside is not None:
            for name, options in self._chain:
                if name in KNOW_COPIES:
                    options["verify"] = self._outside.verify
        self._hold_key = hold_key
        self._clock = FakeClock()
        self._clock.advance(timedelta(days=1))
        self._broker = ModelBroker(self._clock)
        self._told = Told()
        self._draw = random.Random(played.seed)
        self._process = self._boot()

    def play(self) -> Ends:
        """Publish everything, let it come to its end, and return what became of it."""
        clean(self._engine)
        (ends,) = play_together(self)
        return ends

    def publish(self) -> None:
        """Publish everything."""
        for copy in self._history.copies:
            event = self._history.events[copy]
            body = {
                "key": event.key,
                "version": event.number,
                "place": event.place,
                "before": event.place - 1,
                "to": f"s{event.state}",
                "does": event.acts,
            }
            self._broker.publish(Message("orders", json.dumps(body).encode()))

    def move(self, turn: int) -> bool:
        """Let everything that is ready be delivered and handled; returns whether all has come to its end."""
        mortal = turn < _PATIENT and self._outside is None
        self._round(kills=self._history.kills if mortal else 0.0)
        if not self._broker.copies() and not self._parked():
            return True
        # In the end what waits has waited too long.
        self._clock.advance(timedelta(seconds=2) if turn < _PATIENT else timedelta(minutes=10))
        self._broker.wake()
        return False

    def left(self) -> str:
        """Return in words what has not come to its end."""
        return f"{self._broker.copies()}, parked: {self._parked()}"

    def _boot(self) -> Process:
        handler = act_besides if self._own else act
        return Process(
            self._engine,
            self._clock,
            self._broker,
            self._chain,
            self._told,
            handler if self._outside is None else self._outside.act,
            hold_key=self._hold_key,
            name=self._name,
            effects=Effects.DATABASE if self._outside is None else Effects.EXTERNAL,
            redis=self._redis,
        )

    def _round(self, kills: float) -> None:
        draw = self._draw
        try:
            self._process.sweep()
            for _ in range(len(self._broker.waiting)):
                if not self._broker.waiting:
                    break
                disordered = draw.random() < self._history.disorder
                self._broker.deliver(draw.randrange(len(self._broker.waiting)) if disordered else 0)
                if draw.random() < kills:
                    self._process.ambushes[_POINTS[draw.choice(["before", "after"])]] = _kill
                self._work(draw.choice([1, 1, 3, 20]))
            self._work(20)
        except Killed:
            self._process = self._boot()

    def _work(self, limit: int) -> None:
        """Let a worker take and run until nothing is ready."""
        for _ in range(50):
            self._process.take(0, limit)
            if not self._process.taken[0]:
                return
            self._process.work(0)

    def _parked(self) -> list[str]:
        with self._engine.connect() as connection:
            ours = parking.TABLE.c.consumer == f"shop.{self._name}"
            return list(connection.scalars(select(parking.TABLE.c.identity).where(ours)))

    def ends(self) -> Ends:
        """Return what became of the messages."""
        assert not self._broker.wrong, self._broker.wrong
        assert not self._told.troubles, self._told.troubles
        with self._engine.connect() as connection:
            everything = list(connection.scalars(select(Effect.order_id).order_by(Effect.id)))
            columns = (history.TABLE.c.identity, history.TABLE.c.outcome)
            ours = history.TABLE.c.consumer == f"shop.{self._name}"
            noted = connection.execute(select(*columns).where(ours)).all()
        effects = [
            effect.removeprefix(OTHER) for effect in everything if effect.startswith(OTHER) == bool(self._own)
        ]
        ends = Ends(effects, settled={row.identity for row in noted if row.outcome in {"stale", "duplicate"}})
        for dead in self._broker.dead:
            body = json.loads(dead.message.body)
            ends.dead.setdefault(f"{body['key']}:{body['version']}", []).append(dead.reason)
        ends.tried = {identity for identity, _ in self._told.charged}
        return ends


def clean(engine: Engine) -> None:
    """Empty all tables."""
    empty(engine)
    with engine.begin() as connection:
        for table in (*LEDGER, HistoryRow.__table__):
            connection.execute(delete(table))  # type: ignore[arg-type]


def play_together(*lives: HistoryLife) -> list[Ends]:
    """Let consumers take turns until each has come to its end; returns what became of the messages of each."""
    for life in lives:
        life.publish()
    moving = list(lives)
    for turn in range(_ROUNDS):
        moving = [life for life in moving if not life.move(turn)]
        if not moving:
            return [life.ends() for life in lives]
    raise AssertionError(f"never came to an end: {[life.left() for life in moving]}")


def _kill() -> None:
    raise Killed
