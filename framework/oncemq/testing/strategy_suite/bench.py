"""Consumer without a broker: units go straight into the engine, verdicts come back."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine, MetaData
from sqlalchemy.orm import Session

from oncemq.common.clock import Clock, SystemClock
from oncemq.contracts.adapter import Subscription
from oncemq.contracts.strategy import Strategy
from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import RETURNED, Outcome, Verdict
from oncemq.contracts.verification import Answer, Done, NotDone
from oncemq.engine.single_units import (
    Execute,
    ParkedMessages,
    direct,
    largest_unit,
    parked_messages,
    transactional,
)
from oncemq.handler.binding import BoundHandler
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.message.decoding import make_decoder
from oncemq.message.envelope import Delivery, Envelope, Message
from oncemq.message.reader import Reader
from oncemq.redis import RedisClient
from oncemq.redis.connect import make_client
from oncemq.registry import STRATEGIES, Registry
from oncemq.testing.scopes import scope_for
from oncemq.testing.scripted import ScriptedAdapter
from oncemq.testing.strategy_suite import effects
from oncemq.testing.strategy_suite.chain_spec import ChainSpec


def build_chain(
    engine: Engine,
    strategies: Sequence[tuple[str, Mapping[str, Any]]],
    consumer: str,
    verify: Callable[[Envelope], Answer],
    clock: Clock,
    redis: RedisClient | None = None,
) -> tuple[Strategy, ...]:
    """Return strategies as an app would build them, from registry names and options."""
    registry: Registry[Strategy] = Registry(STRATEGIES, "strategy")
    scope = scope_for(consumer, engine, clock=clock, redis=redis)
    places = {"$TABLE": effects.entities_name(consumer), "$VERIFY": verify}
    return tuple(registry.get(name).build(_filled(options, places), scope) for name, options in strategies)


def _filled(options: Any, places: Mapping[str, Any]) -> Any:
    if isinstance(options, Mapping):
        return {name: _filled(value, places) for name, value in options.items()}
    return places.get(options, options) if isinstance(options, str) else options


Handler = Callable[[Any, Session], Any]

STATES = [f"s{number}" for number in range(1, 10)]
"""Message number n of an entity asks for state number n."""


def message(entity: str, number: int, amount: int = 0) -> Message:
    """Return message `number` of an entity; two calls give two copies of the same business message."""
    body = {"id": entity, "n": number, "to": STATES[number - 1], "amount": amount}
    return Message("suite", json.dumps(body).encode())


def no_point(_name: str) -> None:
    """Ignore the progress of a run."""


@dataclass(slots=True)
class Errors:
    """Errors that the engine could only report."""

    seen: list[tuple[str, BaseException]] = field(default_factory=list)

    def __call__(self, doing: str, error: BaseException) -> None:
        """Record the error."""
        self.seen.append((doing, error))


class Bench:
    """One worker of a consumer.

    Args:
        url: a database, which benches may share.
        chain: its strategies.
        scope: the consumer's ledger scope; its own, so that tests can share a database.
        handler: called with the decoded body and the session.
        point: receives the progress of a run.
        clock: the time source.

    Attributes:
        followed: outcomes of parked messages that were followed up, in order.
        follow_ups: the same with reasons.
        hold_back: do not run those messages, but keep them in `kept`.
    """

    def __init__(
        self,
        url: str,
        chain: ChainSpec,
        scope: str,
        handler: Handler | None = None,
        point: Callable[[str], None] = no_point,
        clock: Clock | None = None,
    ) -> None:
        self.engine: Engine = make_engine(url)
        self.scope = scope
        self.entities = effects.entities(scope, chain.key_type) if chain.entity else None
        if self.entities is not None:
            self.entities.create(self.engine, checkfirst=True)
        self.clock = clock or SystemClock()
        self._redis = make_client(chain.redis) if chain.redis else None
        self.strategies = build_chain(
            self.engine, chain.strategies, scope, self.verify, self.clock, self._redis
        )
        self.largest_unit = largest_unit(self.strategies) or 500
        self.tables = [table for strategy in self.strategies for table in strategy.tables(MetaData())]
        schema.create(self.engine, self.tables)
        effects.create(self.engine)
        self.handler: Handler = handler or self.apply
        self.errors = Errors()
        self.followed: list[Outcome] = []
        self.follow_ups: list[Verdict] = []
        self.hold_back = False
        self.kept: list[Delivery] = []
        self._reader = Reader(
            "broker", "suite", "group", key="body.id", version="body.n", identity=(), decoder=make_decoder()
        )
        self.parked = self._make_parking()
        self._execute = self._make_direct(point) if chain.direct else self._make_runner(point)

    def apply(self, body: Any, session: Session) -> None:
        """Write a message's effect; the default handler."""
        effects.add(session, self.scope, body)
        if self.entities is not None:
            effects.touch(session, self.entities, body)

    def deliver(self, *messages: Message) -> list[Outcome]:
        """Run the messages as one unit; returns their outcomes."""
        return [verdict.outcome for verdict in self.verdicts(*messages)]

    def verdicts(self, *messages: Message) -> list[Verdict]:
        """Run the messages as one unit, or as many as the chain's largest unit asks for; returns the verdicts.

        Raises:
            Exception: the consumer would have paused.
        """
        deliveries = [self._delivery(message) for message in messages]
        limit = self.largest_unit
        verdicts: list[Verdict] = []
        for start in range(0, len(deliveries), limit):
            held = {
                delivery.key
                for delivery, verdict in zip(deliveries, verdicts, strict=False)
                if verdict.holds_key
            }
            verdicts += self._run_unit(deliveries[start : start + limit], held)
        return verdicts

    def _run_unit(self, deliveries: list[Delivery], held: set[str]) -> list[Verdict]:
        """Run deliveries as one unit, except those whose key waits behind an earlier unit's message."""
        unit = Unit(
            self.scope,
            [candidate for candidate in deliveries if candidate.key not in held],
            time.monotonic() + 3600,
        )
        result = self._execute(unit)
        if result.trouble is not None:
            raise result.trouble
        self.follow(result.follow)
        return [result.verdicts.get(delivery, RETURNED) for delivery in deliveries]

    def follow(self, deliveries: Sequence[Delivery]) -> None:
        """Run parked messages whose turn has come; each outcome is added to `followed`."""
        if self.hold_back:
            self.kept += deliveries
            return
        todo = list(deliveries)
        while todo:
            part, todo = todo[: self.largest_unit], todo[self.largest_unit :]
            verdicts = self._run_unit(part, set())
            outcomes = [verdict.outcome for verdict in verdicts]
            self.follow_ups += verdicts
            self.followed += outcomes
            # As in a process, deliveries that could not run go back to the head of their queue.
            back = {Outcome.DEFER, Outcome.RETURNED} - (
                {Outcome.RETURNED} if Outcome.RETRY in outcomes else set()
            )
            todo = [
                delivery for delivery, outcome in zip(part, outcomes, strict=True) if outcome in back
            ] + todo

    def sweep(self) -> None:
        """Run due messages, as every process does each second."""
        if self.parked is not None:
            with self.engine.begin() as connection:
                found = self.parked.sweep(connection)
            self.follow(found)

    def deliver_all(self, *messages: Message) -> None:
        """Deliver until no message asks for redelivery, as a broker would."""
        todo = list(messages)
        for _ in range(100):
            verdicts = self.verdicts(*todo)
            again = {Outcome.RETRY, Outcome.DEFER, Outcome.WAIT, Outcome.RETURNED}
            todo = [entry for entry, verdict in zip(todo, verdicts, strict=True) if verdict.outcome in again]
            if not todo:
                return
            delays = [
                entry.delay.total_seconds()
                for entry in verdicts
                if entry.delay is not None and entry.outcome is not Outcome.WAIT
            ]
            if delays and len(delays) == len(todo):
                time.sleep(min(delays))
        raise TimeoutError(f"{len(todo)} messages still ask to come again after 100 rounds")

    def verify(self, envelope: Envelope) -> Answer:
        """Return whether a message's effect exists; the function behind `$VERIFY`."""
        body = json.loads(envelope.body)
        return Done() if (body["id"], body["n"]) in self.effects() else NotDone()

    def effects(self) -> list[tuple[str, int]]:
        """Return every effect so far."""
        return effects.of(self.engine, self.scope)

    def traces(self) -> int:
        """Return how many rows the strategies' tables hold."""
        return effects.count_rows(
            self.engine, [table for table in self.tables if "consumer" in table.c], self.scope
        )

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()
        if self._redis is not None:
            self._redis.close()

    def _delivery(self, message: Message) -> Delivery:
        delivery = Delivery(message)
        self._understand(delivery)
        return delivery

    def _call(self, run: Run, item: Item) -> Any:
        return self.handler(item.payload, run.session)

    def _understand(self, delivery: Delivery) -> None:
        delivery.envelope, delivery.payload = self._reader.read(delivery.message)
        delivery.key = delivery.envelope.key

    def _make_parking(self) -> ParkedMessages | None:
        if not any(strategy.parks for strategy in self.strategies):
            return None
        subscription = Subscription("suite", "suite", "group")
        return parked_messages(
            self.engine, self.scope, self.clock, ScriptedAdapter(), subscription, self._understand
        )

    def _make_runner(self, point: Callable[[str], None]) -> Execute:
        handler = BoundHandler("suite:handler", self._call)
        return transactional(
            self.engine, self.strategies, self.parked, handler, self._reader, self.clock, self.errors, point
        )

    def _make_direct(self, point: Callable[[str], None]) -> Execute:
        def call(run: Run, item: Item) -> Any:
            del run
            with Session(self.engine) as session:
                result = self.handler(item.payload, session)
                session.commit()
            point("handled")
            return result

        handler = BoundHandler("suite:handler", call)
        return direct(self.strategies, handler, self._reader, self.clock, self.errors, point)
