"""Parked messages in a running app: retried from the ledger, dead-lettered through the broker, held behind one another."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, select

from oncemq.contracts.adapter import Confirmed, DeadLetterRequest, ParkedDeadLetter, Refused, Subscription
from oncemq.engine.consumer.pause_gate import PauseGate
from oncemq.engine.consumer.scheduler import Scheduler
from oncemq.engine.parking.parked_source import ParkedMessages, Ticket
from oncemq.engine.plan import ConsumerPlan
from oncemq.engine.workers.parked_sweep import Sweep
from oncemq.errors import BrokerUnavailable, Reject, Retry
from oncemq.ledger import schema
from oncemq.ledger.messages import parking
from oncemq.ledger.messages.parked_row import Parked, parked_of
from oncemq.message import headers as names
from oncemq.message.envelope import Delivery, Message
from oncemq.testing.fake_clock import FakeClock
from oncemq.testing.scripted import ScriptedAdapter
from oncemq_strategies.sequence.strategy import SequenceStrategy
from support.apps.program import eventually
from support.benches.parking import SOON, Seen, adapter, name, order, parked, seen
from support.database.databases import database, engine
from support.engine import make_app, make_consumer, running
from support.units import build

__all__ = ["adapter", "database", "engine", "name", "parked", "seen"]


@pytest.fixture
def sequence(engine: Engine, seen: Seen, name: str) -> ConsumerPlan:
    """Return a consumer whose messages are numbered."""
    chain = [build(SequenceStrategy, engine, name, {"order": "body.n"})]
    return make_consumer(seen.handle, chain, name=name, retry=SOON)


def test_parked_messages_follow_and_are_acknowledged_once(
    engine: Engine, adapter: ScriptedAdapter, sequence: ConsumerPlan, seen: Seen, parked: Callable[[], int]
) -> None:
    """The broker is told once about each delivery, when it is safe; the follow-ups run in order."""
    with running(make_app(adapter, engine, sequence)):
        for number in (3, 2, 1):
            adapter.deliver(order(number))
        seen.wait_for("a1", "a2", "a3")
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 3)
    assert (adapter.retried, adapter.dead, adapter.refused, parked()) == ([], [], [], 0)


def test_a_follow_up_outlives_the_connection_it_came_by(
    engine: Engine, adapter: ScriptedAdapter, sequence: ConsumerPlan, seen: Seen
) -> None:
    """A lost connection voids the broker's deliveries; what is parked is no longer the broker's."""
    with running(make_app(adapter, engine, sequence)):
        adapter.deliver(order(2))
        adapter.wait_until(lambda broker: len(broker.acknowledged) == 1)
        adapter.lose_connection()
        adapter.deliver(order(1))
        seen.wait_for("a1", "a2")


def test_a_follow_up_that_fails_is_tried_again_from_the_ledger(
    engine: Engine, adapter: ScriptedAdapter, sequence: ConsumerPlan, seen: Seen, parked: Callable[[], int]
) -> None:
    """Its attempts go on counting; the broker hears nothing of it."""
    seen.fails["a2"] = [ValueError("no"), Retry("not yet")]
    with running(make_app(adapter, engine, sequence)):
        adapter.deliver(order(2))
        adapter.deliver(order(1))
        seen.wait_for("a1", "a2")
    assert seen.ids.count("a2") == 3
    assert (adapter.retried, adapter.dead, parked()) == ([], [], 0)


@pytest.mark.parametrize("errors", [[Reject("never")], [ValueError("no")] * 3], ids=["reject", "exhausted"])
def test_a_follow_up_that_is_given_up_becomes_a_dead_letter(
    engine: Engine,
    adapter: ScriptedAdapter,
    sequence: ConsumerPlan,
    seen: Seen,
    parked: Callable[[], int],
    errors: list[Exception],
) -> None:
    """Buried through the broker with body, headers and reason, then removed from the ledger."""
    seen.fails["a2"] = list(errors)
    with running(make_app(adapter, engine, sequence)):
        adapter.deliver(order(2), headers={"tenant": "x"}, message_id="m-2", keys=("a",))
        adapter.deliver(order(1))
        adapter.wait_until(lambda broker: bool(broker.buried), 20)
    (burial,) = adapter.buried
    assert (burial.message.body, burial.message.message_id, burial.message.keys) == (order(2), "m-2", ("a",))
    assert burial.message.headers["tenant"] == "x"
    assert burial.headers[names.REASON] in {"rejected", "attempts-exhausted"}
    assert burial.headers[names.ATTEMPT] == str(len(errors))
    assert (seen.done, parked()) == (["a1"], 0)


def test_a_burial_that_the_broker_refuses_is_tried_again(
    engine: Engine, adapter: ScriptedAdapter, sequence: ConsumerPlan, seen: Seen, parked: Callable[[], int]
) -> None:
    """The row stays until the broker has confirmed the dead letter."""
    seen.fails["a2"] = [Reject("never")]
    adapter.fail_next("publish_dead_letters", times=2)
    with running(make_app(adapter, engine, sequence)):
        adapter.deliver(order(2))
        adapter.deliver(order(1))
        adapter.wait_until(lambda broker: bool(broker.buried), 20)
    assert (len(adapter.buried), parked()) == (1, 0)


def test_a_burial_that_cannot_be_asked_for_is_tried_again(engine: Engine, name: str) -> None:
    """A broker that is away altogether says no to each message, and the rows stay."""

    class Away(ScriptedAdapter):
        def publish_dead_letters(
            self, subscription: Subscription, burials: Sequence[ParkedDeadLetter]
        ) -> Sequence[Confirmed | Refused]:
            raise BrokerUnavailable("away")

    schema.create(engine, [parking.TABLE])
    clock = FakeClock()
    place = ParkedMessages(name, engine, clock, Away(), Subscription(name, "t", "g"), _keyed)
    with engine.begin() as connection:
        row = Parked(0, "a", "a1", None, True, Message("t", order(1)), "", clock.now(), clock.now())
        parking.add(connection, name, [row])
        (delivery,) = place.sweep(connection)
    (failed,) = place.dead_letter([DeadLetterRequest(delivery, {})])
    assert (failed.delivery, str(failed.error), place.count()) == (delivery, "away", 1)


def test_each_parked_message_is_taken_once(
    engine: Engine,
    adapter: ScriptedAdapter,
    sequence: ConsumerPlan,
    seen: Seen,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every commit lets a key's next messages follow; those that follow already are not read again each time."""
    taken: list[int] = []
    take = parking.take

    def counting(connection: Connection, ids: Sequence[int], until: datetime) -> list[Parked]:
        taken.extend(ids)
        return take(connection, ids, until)

    monkeypatch.setattr(parking, "take", counting)
    with running(make_app(adapter, engine, replace(sequence, batch_limit=2))):
        for number in range(20, 0, -1):
            adapter.deliver(order(number))
        seen.wait_for(*(f"a{number}" for number in range(1, 21)))
    assert len(taken) == 19


def test_what_a_process_has_in_hand_is_not_swept(engine: Engine, name: str) -> None:
    """A lease may end while its message waits or runs here: a second delivery would keep its failures from counting."""
    schema.create(engine, [parking.TABLE])
    clock, adapter = FakeClock(), ScriptedAdapter()
    queued: list[Delivery] = []
    held: list[Delivery] = []
    place = ParkedMessages(
        name, engine, clock, adapter, Subscription(name, "t", "g"), _keyed, lambda: queued, lambda: held
    )

    def swept() -> list[Delivery]:
        clock.advance(timedelta(minutes=1))
        with engine.begin() as connection:
            return place.sweep(connection)

    with engine.begin() as connection:
        row = Parked(0, "a", "a1", None, True, Message("t", order(1)), "", clock.now(), clock.now())
        parking.add(connection, name, [row])
    (delivery,) = swept()
    queued.append(delivery)
    assert swept() == []
    queued.clear()
    held.append(delivery)
    assert swept() == []
    held.clear()
    assert len(swept()) == 1


@pytest.mark.parametrize(("source", "taken"), [("broker", True), ("ledger", False)])
def test_a_broker_s_backlog_keeps_nothing_parked(
    engine: Engine, name: str, source: str, *, taken: bool
) -> None:
    """What is due is taken however much the broker has delivered; only enough of the ledger's own is enough."""
    schema.create(engine, [parking.TABLE])
    clock = FakeClock()
    scheduler, gate = Scheduler(clock), PauseGate(clock)
    subscription = Subscription(name, "t", "g")
    place = ParkedMessages(name, engine, clock, ScriptedAdapter(), subscription, _keyed, scheduler.snapshot)
    for number in range(2000):
        own = source == "ledger"
        ticket = Ticket(-number, held=True, token=None) if own else None
        scheduler.put([Delivery(Message("t", b""), ticket, source=place if own else None)])
    with engine.begin() as connection:
        row = Parked(0, "a", "a1", None, True, Message("t", order(1)), "", clock.now(), clock.now())
        parking.add(connection, name, [row])
    assert Sweep(place, gate, scheduler)(engine) is taken


def test_the_time_behind_an_earlier_message_is_no_gap(
    engine: Engine, adapter: ScriptedAdapter, seen: Seen, name: str
) -> None:
    """What was held for two hours has not waited for its own turn yet: its `gap_timeout` begins when it may run."""
    chain = [build(SequenceStrategy, engine, name, {"order": "body.n", "on_gap": "dead_letter"})]
    plan = make_app(adapter, engine, make_consumer(seen.handle, chain, name=name, retry=SOON, hold_key=True))
    long_ago = plan.clock.now() - timedelta(hours=2)
    row = Parked(0, "a", "a3", None, True, Message("orders", order(3)), "", long_ago, long_ago)
    with engine.begin() as connection:
        parking.add(connection, f"shop.{name}", [row])
    with running(plan):
        eventually(lambda: not _row(engine, name).held, "a place of its own", said=lambda: "")
    placed = _row(engine, name)
    assert (placed.number, adapter.buried) == (3, [])
    assert placed.parked_at > long_ago
    assert "came early" in placed.reason


def _row(engine: Engine, name: str) -> Any:
    """Return the only row of a consumer."""
    with engine.connect() as connection:
        return connection.execute(
            select(parking.TABLE).where(parking.TABLE.c.consumer == f"shop.{name}")
        ).one()


def _keyed(delivery: Delivery) -> None:
    delivery.key = "a"


def test_a_message_that_cannot_be_stored_is_one_dead_letter(
    engine: Engine, adapter: ScriptedAdapter, sequence: ConsumerPlan, seen: Seen
) -> None:
    """What has no form for the ledger is that message's trouble: it pauses no consumer, and its neighbours go on."""
    with running(make_app(adapter, engine, sequence)):
        odd = adapter.deliver(order(2), message_id=b"\xff")
        adapter.deliver(order(1, "b"))
        adapter.deliver(order(2, "b"))
        seen.wait_for("b1", "b2")
        adapter.wait_until(lambda broker: bool(broker.dead))
    (dead,) = adapter.dead
    assert dead.delivery is odd
    assert dead.headers[names.REASON] == "unstorable"


def test_the_raw_form_is_parked_with_the_message(
    engine: Engine, adapter: ScriptedAdapter, sequence: ConsumerPlan, seen: Seen
) -> None:
    """What is made of a parked message later loses nothing of what its broker had sent."""
    raws: list[bytes | None] = []

    with running(make_app(adapter, engine, sequence)):
        adapter.deliver(order(2), raw=bytes(range(256)), message_id="a\0b", headers={"h\0": "\ud800"})
        eventually(lambda: _raw_rows(engine, sequence.scope, raws), "a parked row")
        adapter.deliver(order(1))
        seen.wait_for("a1", "a2")
    assert raws == [bytes(range(256))]


def _raw_rows(engine: Engine, consumer: str, raws: list[bytes | None]) -> bool:
    """Note the raw forms of what is parked; return whether anything is."""
    with engine.connect() as connection:
        rows = connection.execute(select(parking.TABLE).where(parking.TABLE.c.consumer == consumer)).all()
    raws[:] = [parked_of(row).message.raw for row in rows]
    return bool(rows)
