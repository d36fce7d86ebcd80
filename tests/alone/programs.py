"""Makes random programs, and runs them one message a transaction or in units."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, delete, select
from sqlalchemy.orm import Session

from alone.order import TryOrder
from alone.private_steps import HIDDEN, NOTICING, SETTINGS
from alone.steps import FAILURES, STEPS, Doing
from alone.world import KEYS, NAMES, empty, seen
from oncemq import Publisher
from oncemq.common.clock import SystemClock
from oncemq.contracts.strategy import Strategy
from oncemq.engine.base.hook_points import nothing
from oncemq.engine.outbox.confirmed_publisher import Publishing
from oncemq.engine.outbox.relay import Relay
from oncemq.ledger.records.processed import TABLE as PROCESSED
from oncemq.message.envelope import Delivery
from oncemq.observe.monitor import Monitor
from oncemq_strategies.optimistic_lock.strategy import OptimisticLock
from oncemq_strategies.pessimistic_lock import PessimisticLock
from oncemq_strategies.state_machine.strategy import StateMachine
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.engine import make_topic
from support.units import UnitBench

ALL = {**STEPS, **FAILURES, **SETTINGS, **NOTICING, **HIDDEN}
ATTEMPTS = 2
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_PLACE = re.compile(r"\s(?:at character 0|LINE 0:.*)", re.DOTALL)
_STATES = ["created", "paid", "shipped", "cancelled"]
_CHAINS: Mapping[str, Sequence[tuple[type[Strategy], dict[str, Any]]]] = {
    "unique_key": [],
    "state_machine": [
        (
            StateMachine,
            {
                "to": "body.to",
                "transitions": {"created": ["paid", "cancelled"], "paid": ["shipped", "cancelled"]},
                "early": "reject",
                "entity": {"table": "alone_orders", "key": "id", "state": "state"},
            },
        )
    ],
    "ledger_states": [(StateMachine, {"to": "body.to", "states": _STATES})],
    "optimistic_lock": [
        (
            OptimisticLock,
            {
                "version": "body.version",
                "early": "reject",
                "entity": {"table": "alone_orders", "key": "id", "version": "version"},
            },
        )
    ],
    "pessimistic_lock": [(PessimisticLock, {"table": "alone_orders", "key": "id"})],
}


@dataclass(frozen=True, slots=True)
class Program:
    """Messages, and how they are run.

    Args:
        messages: their steps stand in their bodies.
        chain: the strategies beside `unique_key`, by name.
        poison: the ids of failing neighbours, which have keys of their own.
    """

    messages: Sequence[Mapping[str, Any]]
    chain: str
    poison: frozenset[str]

    @property
    def healthy(self) -> "Program":
        """The same without its failing neighbours."""
        left = [message for message in self.messages if message["id"] not in self.poison]
        return Program(left, self.chain, frozenset())


def program(seed: int) -> Program:
    """Return the program of this number."""
    chance = random.Random(seed)
    count = chance.choices((2, 3, 5, 8, 13, 40, 200), (20, 30, 30, 20, 10, 2, 0.5))[0]
    # What merely adds is most of what there is; else no unit would ever keep anything for later.
    plain = chance.random()
    private = chance.random() < 0.3 and count < 40
    failing = chance.choice((0.0, 0.0, 0.1, 0.3))
    poisoned = chance.random() < 0.3
    messages: list[dict[str, Any]] = []
    for number in range(count):
        steps = _steps(chance, plain, private=private)
        if chance.random() < failing:
            steps.insert(chance.randint(0, len(steps)), chance.choice([*FAILURES]))
        messages.append(_message(chance, f"m{number}", chance.choice(KEYS), steps))
    poison = []
    for number in range(chance.randint(1, 3) if poisoned else 0):
        steps = [*_steps(chance, plain, private=False), chance.choice(("reject", "retry", "fail", "taken"))]
        message = _message(chance, f"x{number}", f"x{number}", steps)
        poison.append(message["id"])
        messages.insert(chance.randint(0, len(messages)), message)
    return Program(messages, chance.choice([*_CHAINS, "unique_key", "unique_key"]), frozenset(poison))


def _steps(chance: random.Random, plain: float, *, private: bool) -> list[str]:
    if chance.random() < plain:
        return chance.choices(("line", "lines", "entry", "publish", "tree"), k=chance.randint(1, 3))
    steps = chance.choices([*STEPS, *NOTICING], k=chance.randint(1, 4))
    if private and chance.random() < 0.3:
        steps.insert(chance.randint(0, len(steps)), chance.choice([*SETTINGS]))
    if private and chance.random() < 0.1:
        steps.insert(chance.randint(0, len(steps)), chance.choice([*HIDDEN]))
    return steps


def _message(chance: random.Random, name: str, key: str, steps: Sequence[str]) -> dict[str, Any]:
    return {
        "id": name,
        "key": key,
        "to": chance.choice(_STATES),
        "version": chance.randint(1, 4),
        "steps": [(step, chance.choice(NAMES)) for step in steps],
    }


def perform(message: dict[str, Any], session: Session, publisher: Publisher) -> None:
    """Carry out a message's steps; the handler."""
    for step, name in message["steps"]:
        ALL[step](Doing(session, publisher, message["id"], name, message["key"]))


@dataclass(slots=True)
class Manner:
    """How a program is run.

    Args:
        size: of its units.
        savepoint_every: so many messages are undone together; None = all.
        guarded: a handler that sends statements has a savepoint of its own.
    """

    size: int
    savepoint_every: int | None = None
    guarded: bool = False


Found = dict[str, Any]
"""Outcomes, dead letters, published messages and tables that a program left behind."""


def outcome_of(engine: Engine, chosen: Program, manner: Manner) -> Found:
    """Return what is left behind after the messages ran in this manner."""
    return tries_of(engine, chosen, manner)[0]


def tries_of(engine: Engine, chosen: Program, manner: Manner) -> tuple[Found, list[str]]:
    """Return the same, and the ids of the messages in the order in which each of their tries ended."""
    empty(engine)
    life = _Life(engine, chosen, manner)
    life.run()
    return _found(engine, life), life.ended


def outcome_in_order(engine: Engine, chosen: Program, order: Sequence[str]) -> Found:
    """Return what is left behind after these tries, one message a transaction."""
    empty(engine)
    life = _Life(engine, chosen, Manner(1))
    life.follow(order)
    return _found(engine, life)


def _found(engine: Engine, life: "_Life") -> Found:
    records = select(PROCESSED.c.identity).where(PROCESSED.c.consumer == life.bench.plan.scope)
    with engine.begin() as connection:
        identities = sorted(connection.execute(records).scalars())
        connection.execute(delete(PROCESSED).where(PROCESSED.c.consumer == life.bench.plan.scope))
    return {"outcomes": life.outcomes, "records": identities, **seen(engine)}


class _Life:
    """Runs messages as a worker does: what failed has its turn again behind the others, and is a dead letter at last."""

    def __init__(self, engine: Engine, chosen: Program, manner: Manner) -> None:
        topics = {"events": make_topic("events")}
        self.bench = UnitBench(
            engine,
            perform,
            UniqueKey,
            *((kind, options) for kind, options in _CHAINS[chosen.chain]),
            topics=topics,
        )
        publishing = Publishing({}, topics, frozenset())
        relay = Relay(
            "shop",
            engine,
            publishing,
            SystemClock(),
            Monitor(None, SystemClock()).observer,
            str,
            timedelta(minutes=1),
            nothing,
        )
        relay.stop(grace=timedelta(0))  # what is published stays in the outbox
        self.bench.attempt._relay = relay
        self.bench.savepoint_every, self.bench.guarded = manner.savepoint_every, manner.guarded
        self._order = TryOrder(self.bench.attempt)
        self._messages = chosen.messages
        self._size = manner.size
        self._waiting: dict[str, Delivery] = {}
        self.outcomes: dict[str, list[str]] = {message["id"]: [] for message in chosen.messages}
        self.ended: list[str] = []

    def run(self) -> None:
        """Run all messages until each has its end; a key whose message failed waits for the next round."""
        todo = list(self._messages)
        while todo:
            todo = self._round(todo)

    def follow(self, order: Sequence[str]) -> None:
        """Run tries in this order; a message that is put off runs again at once, as often as there are messages."""
        messages = {message["id"]: message for message in self._messages}
        for name in order:
            ended = len(self.ended)
            for _ in range(len(self._messages) + 1):
                if len(self.ended) == ended:
                    self._round([messages[name]])

    def _delivery(self, message: Mapping[str, Any]) -> Delivery:
        """Return what stays in the process while a message is put off; a broker sends a new one."""
        delivery = self._waiting.pop(message["id"], None)
        return self.bench.delivery(message) if delivery is None else delivery

    def _round(self, todo: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        held: set[str] = set()
        later: list[Mapping[str, Any]] = []
        while todo:
            unit, todo = todo[: self._size], todo[self._size :]
            deliveries = [self._delivery(message) for message in unit]
            back, ended = [], {}
            for message, delivery, outcome in zip(
                unit, deliveries, self.bench.execute(deliveries), strict=True
            ):
                verdict = self.bench.result.verdicts[delivery]
                if outcome == "returned":
                    back.append(message)
                elif outcome == "deferred":
                    held.add(message["key"])
                    later.append(message)
                    self._waiting[message["id"]] = delivery
                else:
                    error = type(verdict.error).__name__ if verdict.error is not None else ""
                    tries = self.outcomes[message["id"]]
                    ended[delivery] = message["id"]
                    tries.append(f"{outcome} {error} {_words(verdict.reason)}")
                    if outcome == "retry":
                        held.add(message["key"])
                        later += [message] * (len(tries) < ATTEMPTS)
            if self.bench.result.trouble is not None:
                # Only messages that fail alike are left, and the consumer pauses until another one takes effect.
                self.bench.lane.succeeded()
            self.ended += [ended[delivery] for delivery in self._order.of(ended)]
            todo = [*back, *todo]
            later += [message for message in todo if message["key"] in held]
            todo = [message for message in todo if message["key"] not in held]
        return sorted(later, key=self._messages.index)


def _words(reason: str) -> str:
    """Return a reason without what differs by itself: numbers of sequences, and where a statement is wrong.

    PostgreSQL says that in other words of a statement which the driver has prepared, as it does with what is sent often.
    """
    return _PLACE.sub("", _NUMBERS.sub("0", reason))
