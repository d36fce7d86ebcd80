"""The way of hostile messages through a whole app: received, retried, parked, dead, shown, replayed byte by byte."""

import json
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from pathlib import Path
from random import Random
from threading import Event
from time import monotonic
from typing import Any

from sqlalchemy import Engine, String, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from oncemq.cli.commands.dead_letters import _show
from oncemq.cli.output import Output
from oncemq.contracts.adapter import Adapter, Confirmed, DeadLetter
from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.errors import Reject
from oncemq.ledger.database.engine import make_engine
from oncemq.message import headers as names
from oncemq.message.envelope import Envelope, OutgoingMessage
from oncemq.message.signed_history import HistoryKeys
from oncemq.observe import logs
from oncemq.operate.dead_letters import row_of
from oncemq.operate.letters import Letters
from oncemq.retry.backoff import RetryPolicy
from oncemq.testing.recording_sink import RecordingSink
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.apps.program import eventually
from support.engine import make_app, make_consumer, running
from support.hostile.brokers import HostileBroker
from support.units import build

LONG = os.environ.get("ONCEMQ_HOSTILE") == "long"
SEED = int(os.environ.get("ONCEMQ_SEED", "1"))
CONSUMERS = ("plain", "held")
"""Retries by the broker, and retries that are parked in the ledger with what waits behind them."""
WITNESS = "witness"
_EACH = 100
_LOOK_EVERY = 0.25 if LONG else 0.02
"""Seconds."""


class _Base(DeclarativeBase):
    pass


class Applied(_Base):
    """What was applied, for each consumer."""

    __tablename__ = "hostile_applied"
    id: Mapped[int] = mapped_column(primary_key=True)
    consumer: Mapped[str] = mapped_column(String(20))
    order_id: Mapped[str] = mapped_column(String(200))


def applied(engine: Engine, consumer: str) -> list[str]:
    """Return the ids of what a consumer has applied, in order."""
    with engine.connect() as connection:
        return list(connection.scalars(select(Applied.order_id).where(Applied.consumer == consumer)))


def consumer_of(broker: HostileBroker, engine: Engine, name: str) -> ConsumerPlan:
    """Return a consumer whose handler fails for the orders that say so."""

    def handle(order: dict[str, Any], session: Session) -> None:
        if (bad := order.get("bad")) == "reject":
            raise Reject("it says so")
        if bad:
            raise ValueError("it says so")
        session.add(Applied(consumer=name, order_id=order["id"]))

    plan = make_consumer(
        handle,
        [build(UniqueKey, engine, name)],
        name=name,
        retry=RetryPolicy(attempts=2, first=timedelta(milliseconds=10)),
        hold_key=name == "held",
    )
    return replace(plan, subscription=broker.subscription(name))


def healthy_orders(count: int) -> list[OutgoingMessage]:
    """Return orders that can be applied, of many keys."""
    return [
        OutgoingMessage(
            json.dumps({"id": f"good-{number}", "key": f"good-key-{number % 500}"}).encode(),
            key=f"good-key-{number % 500}",
        )
        for number in range(count)
    ]


class Journey:
    """A hostile producer and its healthy neighbours on one topic.

    Args:
        broker: under attack.
        folder: for the database.
        consumers: which take part.
    """

    def __init__(self, broker: HostileBroker, folder: Path, consumers: Sequence[str] = CONSUMERS) -> None:
        self.broker = broker
        self.engine = make_engine(f"sqlite:///{folder / 'app.db'}")
        _Base.metadata.create_all(self.engine)
        self.plans = [consumer_of(broker, self.engine, name) for name in consumers]
        self._publisher = broker.adapter()
        subscriptions = [plan.subscription for plan in self.plans]
        self._publisher.prepare([*subscriptions, broker.subscription(WITNESS)])
        self.plan = make_app(broker.adapter(), self.engine, *self.plans)

    def publish(self, healthy: int, hostile: int, seed: int) -> int:
        """Publish both, mixed, and return how many of the hostile ones the broker took."""
        random, orders, sent = Random(seed), healthy_orders(healthy), 0
        parts = max(1, healthy // _EACH)
        for part in range(parts):
            answers = self._publisher.publish(self.broker.topic, self.broker.options, orders[part::parts])
            assert all(isinstance(answer, Confirmed) for answer in answers), answers
            numbers = range(part, hostile, parts)
            sent += len(self.broker.send([self.broker.odd(random, number) for number in numbers]))
        return sent

    def run(self, healthy: int, hostile: int, patience: float) -> float:
        """Run the app until all has ended; return the seconds until the healthy ones were applied."""
        logs.configure("critical", "json", StringIO())
        began = monotonic()
        with running(self.plan):
            eventually(lambda: self._all_applied(healthy), "the healthy ones", patience, self._said)
            seconds = monotonic() - began
            eventually(lambda: self._all_dead(hostile), "the dead letters", patience, self._said)
        return seconds

    def letters(self, adapter: Adapter, plan: ConsumerPlan) -> list[DeadLetter]:
        """Return the dead letters of a consumer, wherever they lie."""
        return list(Letters(adapter, plan, [self.engine]).all())

    def _all_applied(self, healthy: int) -> bool:
        # Counted by the database, and not often: what looks takes the time of what is looked at.
        Event().wait(_LOOK_EVERY)
        counted = select(func.count(Applied.order_id.distinct()))
        with self.engine.connect() as connection:
            found = [connection.scalar(counted.where(Applied.consumer == plan.name)) for plan in self.plans]
        return all(each == healthy for each in found)

    def _all_dead(self, hostile: int) -> bool:
        return all(len(self.letters(self._publisher, plan)) >= hostile for plan in self.plans)

    def _said(self) -> str:
        dead = {plan.name: len(self.letters(self._publisher, plan)) for plan in self.plans}
        done = {plan.name: len(applied(self.engine, plan.name)) for plan in self.plans}
        return f"applied {done}, dead {dead}"

    def assert_ended(self, healthy: int, hostile: int) -> None:
        """All healthy ones were applied, none twice, and each hostile one can be shown."""
        for plan in self.plans:
            found = Counter(applied(self.engine, plan.name))
            assert len(found) == healthy, plan.name
            assert found.total() == healthy, plan.name
            letters = self.letters(self._publisher, plan)
            assert len(letters) == hostile, (plan.name, len(letters), hostile)
            for letter in letters:
                assert_shown(plan, letter)

    def assert_replayed(self, hostile: int, patience: float) -> None:
        """What comes back is what a group gets that sees it for the first time."""
        sink = RecordingSink()
        witness = self.broker.adapter()
        subscriptions = [self.broker.subscription(WITNESS)]
        for plan in self.plans:
            letters = self.letters(self._publisher, plan)
            found = Letters(self._publisher, plan, [self.engine])
            ids = [letter.id for letter in letters]
            assert sum(found.replay(ids[at : at + _EACH]) for at in range(0, len(ids), _EACH)) == hostile
            assert self.letters(self._publisher, plan) == []
            subscriptions.append(plan.subscription)
        witness.open(subscriptions, sink)
        try:
            first = self._came(sink, witness, WITNESS, hostile, patience)
            for plan in self.plans:
                again = self._came(sink, witness, plan.name, hostile, patience)
                assert again == first, (plan.name, different(again - first, first - again))
        finally:
            witness.close(grace=timedelta(seconds=5))

    def _came(
        self, sink: RecordingSink, adapter: Adapter, consumer: str, hostile: int, patience: float
    ) -> Counter[Any]:
        found: Counter[Any] = Counter()
        seen = 0
        deadline = monotonic() + patience
        while found.total() < hostile:
            assert monotonic() < deadline, (consumer, found.total(), hostile)
            seen += 1
            delivery = sink.wait_for(seen, patience, consumer)[seen - 1]
            if adapter.acknowledge([delivery]):
                continue  # void, and delivered again
            if not delivery.message.body.startswith(b'{"id": "good-'):
                assert delivery.message.attempt == 1, delivery
                found[self.broker.same(delivery.message)] += 1
        return found

    def close(self) -> None:
        """Disconnect."""
        self._publisher.close(grace=timedelta(seconds=1))
        self.broker.close()
        self.engine.dispose()


def different(came: Counter[Any], expected: Counter[Any]) -> list[tuple[Any, ...]]:
    """Return what differs, by pairs with the same body, cut so that a person can read it."""
    by_body = {each[0]: each for each in expected}
    pairs = [(each, by_body.get(each[0], ((),) * len(each))) for each in came]
    return [
        tuple(
            (repr(expected)[:300], repr(other)[:300])
            for expected, other in zip(*pair, strict=True)
            if expected != other
        )
        for pair in pairs[:5]
    ]


def assert_shown(plan: ConsumerPlan, letter: DeadLetter) -> None:
    """`dead-letters show` says why and shows the body, as text and as JSON."""
    row = row_of(plan, letter)
    assert row["reason"], letter
    assert row["attempts"] in {1, 2}, letter
    for as_json in (False, True):
        shown = StringIO()
        with redirect_stdout(shown):
            _show(Output(as_json=as_json), row, letter, plan.redact)
        assert shown.getvalue().encode(errors="strict"), letter
    json.loads(shown.getvalue())


def journey(broker: HostileBroker, folder: Path, healthy: int, hostile: int, seed: int) -> None:
    """Send both through the app, and look at all that came of them."""
    trip = Journey(broker, folder)
    patience = 20.0 + hostile / 4
    try:
        sent = trip.publish(healthy, hostile, seed)
        assert sent > hostile // 2
        trip.run(healthy, sent, patience)
        trip.assert_ended(healthy, sent)
        trip.assert_replayed(sent, patience)
    finally:
        trip.close()


def always_failing(broker: HostileBroker, folder: Path, seen: list[int]) -> tuple[AppPlan, ConsumerPlan]:
    """Return the app of a consumer with `history_key` that always fails and notes its attempts; three are allowed."""

    def handle(order: dict[str, Any], envelope: Envelope) -> None:
        seen.append(envelope.attempt)
        raise ValueError(order["id"])

    engine = make_engine(f"sqlite:///{folder / 'app.db'}")
    policy = RetryPolicy(attempts=3, first=timedelta(milliseconds=10))
    plan = make_consumer(handle, [build(UniqueKey, engine, "signed")], name="signed", retry=policy)
    keys = HistoryKeys("k" * 32)
    plan = replace(plan, subscription=broker.subscription("signed"), history_keys=keys)
    return make_app(broker.adapter(), engine, plan), plan


def assert_signed_attempts_count(broker: HostileBroker, folder: Path) -> None:
    """Run a message that always fails: it is tried three times, and then it is a dead letter."""
    seen: list[int] = []
    app, plan = always_failing(broker, folder, seen)
    publisher = broker.adapter()
    publisher.prepare([plan.subscription])
    order = OutgoingMessage(b'{"id": "1", "key": "k"}', key="k")
    (answer,) = publisher.publish(broker.topic, broker.options, [order])
    assert isinstance(answer, Confirmed)
    with running(app):
        eventually(lambda: list(publisher.dead_letters(plan.subscription, 2)), "the dead letter", 30)
    (letter,) = publisher.dead_letters(plan.subscription, 2)
    publisher.close(grace=timedelta(seconds=1))
    broker.close()
    assert seen == [1, 2, 3]
    assert names.attempt_of(letter.message.headers) == 3
