"""One pair of strategies in two running processes: failures first, then everything in disorder and in copies, then again."""

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, func, select, update
from sqlalchemy.orm import Session

from matrix.broker import HoldingBroker
from matrix.catalog import STATES, Pair
from matrix.tables import Effect, Thing, add_things
from oncemq import App, Done, Envelope, NotDone, Reject, Retry
from oncemq.config.build.catalog import Catalog
from oncemq.contracts.checks import Effects
from oncemq.engine.plan import AppPlan
from oncemq.ledger import schema
from oncemq.ledger.messages import parking
from oncemq.message.envelope import Message
from oncemq.testing.scripted import ScriptedAdapter
from services.waiting import wait_until
from support.engine import running
from support.heard import Heard
from support.model.random_broker import TAG
from support.patience import PATIENCE

Identity = tuple[str, int]
"""A thing's letter, and the message's number."""

FAULTS: dict[Identity, str] = {
    ("b", 1): "raise",
    ("c", 2): "raise late",
    ("d", 1): "retry",
    ("e", 1): "reject",
}
IDENTITIES: tuple[Identity, ...] = (*((letter, n) for letter in "abcd" for n in (1, 2, 3)), ("e", 1))
_ROUNDS = 20
_SETTLED = timedelta(seconds=20 * PATIENCE)


@dataclass(frozen=True, slots=True)
class Places:
    """Where trials run.

    Args:
        engine: a database with the matrix's tables.
        redis: the URL of a Redis.
        run: what no other run's names begin with.
    """

    engine: Engine
    redis: str | None
    run: str

    @property
    def url(self) -> str:
        """The database's URL."""
        return self.engine.url.render_as_string(hide_password=False)


def declare(pair: Pair, places: Places, handler: Any, verify: Any) -> App:
    """Return the app whose consumer has this pair."""
    app = App(
        "matrix",
        brokers={"main": "scripted://"},
        database=places.url,
        redis=places.redis,
        catalog=Catalog(adapters={"scripted": ScriptedAdapter}),
        grace="5s",
    )
    app.topic("changes", key="body.name", version="body.number")
    app.consumer(
        topic="changes",
        name=pair.consumer(places.run),
        strategies=pair.strategies(verify),
        effects=str(pair.effects),
        retry={"attempts": 6, "backoff": {"first": "10ms", "factor": 1}},
        workers=1,
    )(handler)
    return app


class Trial:
    """What one pair does with the same messages as every other pair.

    Args:
        pair: the strategies.
        places: where.

    Attributes:
        sick: every message that has a fault fails; else once more at most.
        left: what the ledger held after nothing but failures, by table.
    """

    def __init__(self, pair: Pair, places: Places) -> None:
        self.pair = pair
        self.places = places
        self.engine = places.engine
        self.broker = HoldingBroker(2)
        self.sick = True
        self.left: Counter[str] = Counter()
        self.heard = Heard()
        self.names = {letter: f"{places.run}-{pair}-{letter}" for letter in "abcde"}
        self._failed: set[Identity] = set()
        self._tags = 0
        self._waits = False
        self._draw = random.Random(str(pair))
        self._lock = threading.Lock()
        handler = self._inside if pair.effects is Effects.DATABASE else self._outside
        self._app = declare(pair, places, handler, self._look)
        self.ledger: list[Any] = []

    def run(self) -> None:
        """Play it to its end."""
        add_things(self.engine, list(self.names.values()))
        with self._processes():
            self._fail()
            self._storm()
            self._again()

    def tag_of(self, tag: str) -> Identity:
        """Return which message a copy is one of."""
        letter, number, _ = tag.split("-")
        return letter, int(number)

    def rows(self) -> Counter[str]:
        """Return how many rows the strategies' tables hold for this consumer."""
        with self.engine.connect() as connection:
            ours = f"matrix.{self.pair.consumer(self.places.run)}"
            counts = {
                table.name: connection.execute(
                    select(func.count()).select_from(table).where(table.c.consumer == ours)
                ).scalar_one()
                for table in self.ledger
            }
        return +Counter(counts)

    @contextmanager
    def _processes(self) -> Iterator[None]:
        with ExitStack() as stack:
            plans = [self._app.plan() for _ in self.broker.fronts]
            self._create(plans[0])
            for plan, front in zip(plans, self.broker.fronts, strict=True):
                stack.callback(_close, plan)
                stack.enter_context(running(replace(plan, adapters={"main": front}), observers=[self.heard]))
            yield

    def _create(self, plan: AppPlan) -> None:
        tables = plan.tables()
        schema.create(self.engine, tables)
        self._waits = any(table.name == parking.TABLE.name for table in tables)
        self.ledger = [table for table in tables if "consumer" in table.c and table.name != "oncemq_history"]

    def _fail(self) -> None:
        """Nothing but what fails, each of it in two copies."""
        first = [self._message(identity) for identity in (("b", 1), ("b", 1), ("d", 1), ("e", 1))]
        second = [self._message(identity) for identity in (("d", 1), ("e", 1))]
        self._play(first, second)
        self.left = self.rows()
        self.sick = False

    def _storm(self) -> None:
        """Everything in disorder, each message in copies side by side and in both processes."""
        messages = list(IDENTITIES)
        self._draw.shuffle(messages)
        sends: tuple[list[Message], list[Message]] = ([], [])
        for message in messages:
            place = self._draw.randrange(2)
            sends[place].append(self._message(message))
            sends[self._draw.choice((place, 1 - place))].append(self._message(message))
        self._play(*sends)
        for _ in range(_ROUNDS):
            held = self.broker.release()
            if not held:
                return
            self._play(held[::2], held[1::2])
        self.broker.wrong.append(f"messages came back for {_ROUNDS} rounds")

    def _again(self) -> None:
        """Everything once more, long after it was done."""
        self._play([self._message(identity) for identity in IDENTITIES], [])
        for _ in range(_ROUNDS):
            held = self.broker.release()
            if not held:
                return
            self._play([], held)

    def _play(self, first: Sequence[Message], second: Sequence[Message]) -> None:
        self.broker.send(0, first)
        self.broker.send(1, second)
        tags = {message.headers[TAG] for message in (*first, *second)}
        left_open = self.broker.settled(tags, _SETTLED)
        if left_open:
            self.broker.wrong.append(f"never settled: {sorted(left_open)}")
        if not self._waits:
            return
        # What is held comes first: what is parked behind it cannot go on before.
        if not wait_until(lambda: parking.TABLE.name not in self.rows() or self.broker.holds, seconds=60):
            self.broker.wrong.append(f"still parked after a minute: {self.rows()}")

    def _message(self, one: Identity) -> Message:
        self._tags += 1
        letter, number = one
        body = {
            "letter": letter,
            "name": self.names[letter],
            "number": number,
            "before": number - 1,
            "state": STATES[number - 1],
        }
        tag = f"{letter}-{number}-{self._tags}"
        return Message("changes", json.dumps(body).encode(), headers={TAG: tag})

    def _inside(self, body: dict, session: Session) -> None:  # type: ignore[type-arg]
        """Write in the framework's transaction."""
        self._apply(body, session)
        self._fail_if_due(body)

    def _outside(self, body: dict) -> None:  # type: ignore[type-arg]
        """Stand for another system, which commits by itself."""
        with Session(self.engine) as session:
            self._apply(body, session)
            late = FAULTS.get((body["letter"], body["number"])) == "raise late"
            if not late:
                self._fail_if_due(body)
            session.commit()
        if late:
            self._fail_if_due(body)

    def _apply(self, body: dict[str, Any], session: Session) -> None:
        session.add(Effect(name=body["name"], number=body["number"]))
        session.execute(update(Thing).where(Thing.name == body["name"]).values(number=body["number"]))

    def _fail_if_due(self, body: dict[str, Any]) -> None:
        identity = (body["letter"], body["number"])
        fault = FAULTS.get(identity)
        if fault is None:
            return
        with self._lock:
            due = self.sick or (fault == "raise late" and identity not in self._failed)
            self._failed.add(identity)
        if due:
            raise {"retry": Retry("not yet"), "reject": Reject("never")}.get(fault, RuntimeError("not today"))

    def _look(self, envelope: Envelope) -> Done | NotDone:
        """Return whether a message's effect is there."""
        body = json.loads(envelope.body)
        there = select(Effect.id).where(Effect.name == body["name"], Effect.number == body["number"])
        with self.engine.connect() as connection:
            return Done() if connection.execute(there).first() else NotDone()


def _close(plan: AppPlan) -> None:
    if plan.engine is not None:
        plan.engine.dispose()
    if plan.redis is not None:
        plan.redis.close()
