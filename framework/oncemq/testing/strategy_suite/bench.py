"""A consumer without a broker: units go straight into the engine, verdicts come back."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, MetaData
from sqlalchemy.orm import Session

from oncemq.clock import SystemClock
from oncemq.handler import BoundHandler
from oncemq.ledger import schema
from oncemq.ledger.engine import make_engine
from oncemq.message.decoding import make_decoder
from oncemq.message.envelope import Delivery, Envelope, Message
from oncemq.message.expressions import compile_expression
from oncemq.message.reader import Reader
from oncemq.registry import STRATEGIES, Registry
from oncemq.run.attempt import Attempt
from oncemq.run.chain import Chain
from oncemq.run.direct import DirectRunner
from oncemq.run.finishing import Finisher
from oncemq.run.items import ItemLoop
from oncemq.run.lane import Lane
from oncemq.run.limits import Slot
from oncemq.run.recorder import NoRecorder
from oncemq.run.rescue import Rescue
from oncemq.run.session import install
from oncemq.run.transactional import UnitRunner
from oncemq.strategy import Scope, Strategy
from oncemq.testing.strategy_suite import effects
from oncemq.unit import Item, Run, Unit
from oncemq.verdict import RETURNED, Outcome, Verdict
from oncemq.verification import Answer, Done, NotDone

Handler = Callable[[Any, Session], Any]

STATES = [f"s{number}" for number in range(1, 10)]
"""Message number n of an entity asks for state number n."""


@dataclass(frozen=True, slots=True)
class ChainSpec:
    """A chain as the configuration writes it.

    Args:
        strategies: registry name and options, in order.
        late_is_stale: a message that comes after a newer one of its key does not run.
        early_waits: a message that comes before its predecessor does not run yet.
        compares_content: the same identity with another `amount` is a conflict.
        entity: the chain works on a table of the user's, which `$TABLE` in its options stands for.
        waits: a copy does not run while the first one's transaction is open; else it may, and loses then.
        direct: effects are outside, so units are direct; each handler commits its effect by itself. `$VERIFY` in the
            options stands for a function that looks whether a message's effect is there.
        doubts: what a handler did that raised is in doubt, which leaves a trace until somebody has looked.
    """

    strategies: Sequence[tuple[str, Mapping[str, Any]]]
    late_is_stale: bool = False
    early_waits: bool = False
    compares_content: bool = False
    entity: bool = False
    waits: bool = True
    direct: bool = False
    doubts: bool = False


def message(entity: str, number: int, amount: int = 0) -> Message:
    """Return message `number` of an entity; two calls give two copies of the same business message."""
    body = {"id": entity, "n": number, "to": STATES[number - 1], "amount": amount}
    return Message("suite", json.dumps(body).encode())


def no_point(_name: str) -> None:
    """Be told how far a run has come, and do nothing."""


@dataclass(slots=True)
class Errors:
    """What the engine could only tell somebody."""

    seen: list[tuple[str, BaseException]] = field(default_factory=list)

    def __call__(self, doing: str, error: BaseException) -> None:
        """Keep it."""
        self.seen.append((doing, error))


class Bench:
    """One worker of a consumer.

    Args:
        url: a database, which benches may share.
        chain: its strategies.
        scope: the consumer's ledger scope; its own, so that tests can share a database.
        handler: called with the decoded body and the session.
        point: told how far a run has come.
    """

    def __init__(
        self,
        url: str,
        chain: ChainSpec,
        scope: str,
        handler: Handler | None = None,
        point: Callable[[str], None] = no_point,
    ) -> None:
        self.engine: Engine = make_engine(url)
        install(self.engine)
        self.scope = scope
        self.entities = effects.entities(scope) if chain.entity else None
        if self.entities is not None:
            self.entities.create(self.engine, checkfirst=True)
        self.strategies = _build(self.engine, chain, scope, self.verify)
        self.largest_unit = Chain(self.strategies).max_batch or 500
        self.tables = [table for strategy in self.strategies for table in strategy.tables(MetaData())]
        schema.create(self.engine, self.tables)
        effects.create(self.engine)
        self.handler: Handler = handler or self.apply
        self.errors = Errors()
        self._reader = Reader(
            "broker", "suite", "group", key="body.id", version="body.n", identity=(), decoder=make_decoder()
        )
        self._runner = self._make_direct(point) if chain.direct else self._make_runner(point)

    def apply(self, body: Any, session: Session) -> None:
        """Write a message's effect; the usual handler."""
        effects.add(session, self.scope, body)
        if self.entities is not None:
            effects.touch(session, self.entities, body)

    def deliver(self, *messages: Message) -> list[Outcome]:
        """Run the messages as one unit; returns what became of each."""
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
            held = {one.key for one, verdict in zip(deliveries, verdicts, strict=False) if verdict.holds_key}
            verdicts += self._run_unit(deliveries[start : start + limit], held)
        return verdicts

    def _run_unit(self, deliveries: list[Delivery], held: set[str]) -> list[Verdict]:
        """Run deliveries as one unit, but for those whose key waits behind an earlier unit's message."""
        unit = Unit(self.scope, [one for one in deliveries if one.key not in held], time.monotonic() + 3600)
        result = self._runner.execute(unit)
        if result.trouble is not None:
            raise result.trouble
        return [result.verdicts.get(delivery, RETURNED) for delivery in deliveries]

    def deliver_all(self, *messages: Message) -> None:
        """Deliver until nothing asks to come again, as a broker would."""
        todo = list(messages)
        for _ in range(100):
            verdicts = self.verdicts(*todo)
            again = {Outcome.RETRY, Outcome.DEFER, Outcome.RETURNED}
            todo = [one for one, verdict in zip(todo, verdicts, strict=True) if verdict.outcome in again]
            if not todo:
                return
            delays = [one.delay.total_seconds() for one in verdicts if one.delay is not None]
            if delays and len(delays) == len(todo):
                time.sleep(min(delays))
        raise TimeoutError(f"{len(todo)} messages still ask to come again after 100 rounds")

    def verify(self, envelope: Envelope) -> Answer:
        """Return whether a message's effect is there; what `$VERIFY` stands for."""
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

    def _delivery(self, message: Message) -> Delivery:
        delivery = Delivery(message)
        delivery.envelope, delivery.payload = self._reader.read(message)
        delivery.key = delivery.envelope.key
        return delivery

    def _call(self, run: Run, item: Item) -> Any:
        return self.handler(item.payload, run.session)

    def _make_runner(self, point: Callable[[str], None]) -> UnitRunner:
        chain, slot, recorder = Chain(self.strategies), Slot(), NoRecorder()
        loop = ItemLoop(chain, BoundHandler("suite:handler", self._call), time.monotonic, recorder, slot)
        attempt = Attempt(
            self.engine, chain, self._reader, loop, recorder, slot, SystemClock(), self.errors, point
        )
        rescue = Rescue(
            attempt,
            Lane(),
            lambda _tries, _pause, _error: None,
            lambda _on, _error: None,
            time.sleep,
            second_look=chain.second_look,
        )
        return UnitRunner(chain, rescue, self.errors)

    def _make_direct(self, point: Callable[[str], None]) -> DirectRunner:
        chain = Chain(self.strategies)
        chain.loads.insert(0, lambda _run, _items: point("reserved"))
        chain.saves.append(lambda _run: point("saved"))
        chain.committeds.append(lambda _run: point("committed"))

        def call(run: Run, item: Item) -> Any:
            del run
            with Session(self.engine) as session:
                result = self.handler(item.payload, session)
                session.commit()
            point("handled")
            return result

        finisher = Finisher(
            chain, self.errors, lambda _tries, _pause, _trouble: None, lambda: False, time.sleep
        )
        handler = BoundHandler("suite:handler", call)
        return DirectRunner(
            chain,
            handler,
            self._reader,
            NoRecorder(),
            Slot(),
            SystemClock(),
            self.errors,
            finisher,
        )


def _build(
    engine: Engine, chain: ChainSpec, consumer: str, verify: Callable[[Envelope], Answer]
) -> tuple[Strategy, ...]:
    registry: Registry[Strategy] = Registry(STRATEGIES, "strategy")
    scope = Scope(
        app="suite",
        consumer=consumer,
        dialect=engine.dialect.name,
        engine=engine,
        metadata=MetaData(),
        clock=SystemClock(),
        keep=timedelta(days=7),
        expression=compile_expression,
        import_object=lambda name: name,
    )
    places = {"$TABLE": effects.entities_name(consumer), "$VERIFY": verify}
    return tuple(
        registry.get(name).build(_filled(options, places), scope) for name, options in chain.strategies
    )


def _filled(options: Any, places: Mapping[str, Any]) -> Any:
    if isinstance(options, Mapping):
        return {name: _filled(value, places) for name, value in options.items()}
    return places.get(options, options) if isinstance(options, str) else options
