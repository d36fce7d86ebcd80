"""A history played on the real engine and a real database, by processes that die and a broker that shuffles."""

import json
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from oncemq.errors import Reject
from oncemq.ledger import history, locked_rows, parking, processed, sequences, states
from oncemq.message.envelope import Envelope, Message
from oncemq.testing.fake_clock import FakeClock
from oncemq.testing.strategy_suite.effects import Name
from support.effects import Base, Effect, empty
from support.histories import Ends, History, options_of
from support.model_broker import ModelBroker
from support.model_process import Bad, Killed, Process, Told

LEDGER = (
    processed.TABLE,
    states.TABLE,
    sequences.TABLE,
    parking.TABLE,
    history.TABLE,
    locked_rows.TABLE,
)
_ROUNDS = 80
_PATIENT = 20
_POINTS = {"before": "before-commit", "after": "committed"}


class HistoryRow(Base):
    """What a key names, where a strategy keeps versions in the user's table."""

    __tablename__ = "history_rows"
    name: Mapped[str] = mapped_column(Name, primary_key=True)
    version: Mapped[int | None]


def act(body: dict[str, Any], envelope: Envelope, session: Session) -> None:
    """Do what the message says for this attempt, after writing."""
    does = body["does"]
    session.add(Effect(order_id=envelope.identity, key=body["key"], attempt=envelope.attempt))
    if session.get(HistoryRow, body["key"]) is None:
        session.add(HistoryRow(name=body["key"]))
    session.flush()
    if envelope.attempt <= len(does) and does[envelope.attempt - 1] != "add":
        if does[envelope.attempt - 1] == "reject":
            raise Reject("no")
        raise Bad("not this time")


class HistoryLife:
    """The life of one consumer through one history.

    Args:
        engine: a database with all tables.
        played: the history.
        chain: the strategies' names, in order.
        hold_key: keys wait while one of their messages is tried again.
    """

    def __init__(self, engine: Engine, played: History, chain: Sequence[str], *, hold_key: bool) -> None:
        self._engine = engine
        self._history = played
        self._chain = [(name, dict(options_of(name))) for name in chain]
        self._hold_key = hold_key
        self._clock = FakeClock()
        self._clock.advance(timedelta(days=1))
        self._broker = ModelBroker(self._clock)
        self._told = Told()
        self._draw = random.Random(played.seed)
        self._process = self._boot()

    def play(self) -> Ends:
        """Publish everything, let it come to its end, and return what became of it."""
        self._clean()
        for copy in self._history.copies:
            event = self._history.events[copy]
            body = {
                "key": event.key,
                "version": event.number,
                "place": event.place,
                "to": f"s{event.state}",
                "does": event.acts,
            }
            self._broker.publish(Message("orders", json.dumps(body).encode()))
        for turn in range(_ROUNDS):
            self._round(kills=self._history.kills if turn < _PATIENT else 0.0)
            if not self._broker.copies() and not self._parked():
                return self._ends()
            # In the end what waits has waited too long.
            self._clock.advance(timedelta(seconds=2) if turn < _PATIENT else timedelta(minutes=10))
            self._broker.wake()
        raise AssertionError(f"never came to an end: {self._broker.copies()}, parked: {self._parked()}")

    def _boot(self) -> Process:
        return Process(
            self._engine,
            self._clock,
            self._broker,
            self._chain,
            self._told,
            act,
            hold_key=self._hold_key,
        )

    def _clean(self) -> None:
        empty(self._engine)
        with self._engine.begin() as connection:
            for table in (*LEDGER, HistoryRow.__table__):
                connection.execute(delete(table))  # type: ignore[arg-type]

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
            return list(connection.scalars(select(parking.TABLE.c.identity)))

    def _ends(self) -> Ends:
        assert not self._broker.wrong, self._broker.wrong
        assert not self._told.troubles, self._told.troubles
        with self._engine.connect() as connection:
            effects = list(connection.scalars(select(Effect.order_id).order_by(Effect.id)))
            noted = connection.execute(select(history.TABLE.c.identity, history.TABLE.c.outcome)).all()
        ends = Ends(effects, settled={row.identity for row in noted if row.outcome in {"stale", "duplicate"}})
        for dead in self._broker.dead:
            body = json.loads(dead.message.body)
            ends.dead.setdefault(f"{body['key']}:{body['version']}", []).append(dead.reason)
        ends.tried = {identity for identity, _ in self._told.charged}
        return ends


def _kill() -> None:
    raise Killed
