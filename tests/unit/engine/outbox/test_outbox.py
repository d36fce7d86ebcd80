"""What handlers publish: with their transaction or not at all, in order, with one id for ever, to any broker."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, select, update
from sqlalchemy.orm import Session

from oncemq.common.clock import SystemClock
from oncemq.contracts.publisher import Publisher
from oncemq.contracts.unit import Run
from oncemq.engine.base.hook_points import OUTBOX_POINTS, nothing
from oncemq.engine.outbox.broker_sender import BrokerSender, DueIn
from oncemq.engine.outbox.confirmed_publisher import Publishing
from oncemq.engine.outbox.relay import Relay
from oncemq.errors import BrokerError, BrokerRefused, BrokerUnavailable, Reject, Retry
from oncemq.handler.batch import Batch
from oncemq.ledger.messages import outbox
from oncemq.message.envelope import OutgoingMessage
from oncemq.observe.observers import Observers
from oncemq.testing.scripted import ScriptedAdapter
from support.apps.program import eventually
from support.benches.outbox import TOPICS, adapter, app, engine, order, sent, waiting
from support.database.databases import database
from support.effects import effects, give
from support.engine import make_app, running
from support.heard import Heard

__all__ = ["adapter", "database", "engine"]


def ship(body: dict[str, Any], session: Session, publisher: Publisher) -> None:
    """Leave an effect and publish one message; then fail if the order says so."""
    give(session, body)
    publisher.publish("shipped", body)
    if body.get("fault") == "reject":
        raise Reject("no")
    if body.get("fault") == "retry":
        raise Retry("later")


def emptied(engine: Engine) -> bool:
    """Wait until the outbox is empty."""
    pause = threading.Event()
    for _ in range(1000):
        if not waiting(engine):
            return True
        pause.wait(0.02)
    return False


def test_what_a_handler_publishes_is_sent_after_its_commit(adapter: ScriptedAdapter, engine: Engine) -> None:
    """Every message once, each key's in order, and nothing is left in the outbox."""
    numbers = range(40)
    with running(app(adapter, engine, ship)):
        for number in numbers:
            adapter.deliver(order(number, key=f"k{number % 3}"))
        adapter.wait_until(lambda a: len(a.published) >= len(numbers))
        assert emptied(engine)
    assert sorted(sent(adapter)) == sorted(effects(engine)) == sorted(f"o{number}" for number in numbers)
    for key in range(3):
        mine = [f"o{number}" for number in numbers if number % 3 == key]
        assert [number for number in sent(adapter) if number in mine] == mine
    assert {sent.message.key for sent in adapter.published} == {"k0", "k1", "k2"}
    assert len({sent.message.message_id for sent in adapter.published}) == len(numbers)


@pytest.mark.parametrize("fault", ["reject", "retry"])
def test_an_item_that_is_not_applied_publishes_nothing(
    adapter: ScriptedAdapter, engine: Engine, fault: str
) -> None:
    """Neither when the run went on without it nor when it was rolled back; its neighbours' messages are sent."""
    with running(app(adapter, engine, ship)):
        adapter.deliver(order(1, key="a"))
        adapter.deliver(order(2, key="b", fault=fault))
        adapter.deliver(order(3, key="c"))
        adapter.wait_until(lambda a: len(a.acknowledged) == 2 and len(a.dead) + len(a.retried) == 1)
        adapter.wait_until(lambda a: len(a.published) == 2)
        assert emptied(engine)
    assert sorted(sent(adapter)) == sorted(effects(engine)) == ["o1", "o3"]


def test_an_item_that_fails_before_any_statement_publishes_nothing(
    adapter: ScriptedAdapter, engine: Engine
) -> None:
    """The run goes on without it, and so does what its neighbours published."""

    def only_publish(body: dict[str, Any], publisher: Publisher) -> None:
        publisher.publish("shipped", body)
        if body.get("fault"):
            raise Reject("no")

    with running(app(adapter, engine, only_publish)):
        adapter.deliver(order(1, key="a", fault="reject"))
        adapter.deliver(order(2, key="b"))
        adapter.wait_until(lambda a: len(a.published) == 1 and len(a.dead) == 1)
        assert emptied(engine)
    assert sent(adapter) == ["o2"]


def test_a_batch_handler_publishes_with_its_batch(adapter: ScriptedAdapter, engine: Engine) -> None:
    """One publisher for all messages of the call."""

    def ship_all(orders: Batch[dict], session: Session, publisher: Publisher) -> None:
        for body in orders:
            give(session, body)
            publisher.publish("shipped", body)

    with running(app(adapter, engine, ship_all)):
        for number in range(10):
            adapter.deliver(order(number, key=f"k{number}"))
        adapter.wait_until(lambda a: len(a.published) == 10)
        assert emptied(engine)
    assert sorted(sent(adapter)) == sorted(effects(engine))


def test_the_topic_decides_the_broker(adapter: ScriptedAdapter, engine: Engine) -> None:
    """A broker without consumers is connected by the first message for it."""
    bank = ScriptedAdapter()

    def bill(body: dict[str, Any], publisher: Publisher) -> None:
        publisher.publish("billed", body, version=3, headers={"tenant": "a"}, message_id="mine")
        publisher.publish("raw", b"\x00\xff", key=7)

    plan = app(adapter, engine, bill)
    with running(replace(plan, adapters={"main": adapter, "bank": bank})):
        adapter.deliver(order(1))
        bank.wait_until(lambda a: len(a.published) == 1)
        adapter.wait_until(lambda a: len(a.published) == 1)
        assert emptied(engine)
    message = bank.published[0].message
    assert (message.key, message.message_id) == ("k", "mine")
    assert message.headers == {"content-type": "application/json", "version": "3", "tenant": "a"}
    assert (adapter.published[0].message.body, adapter.published[0].message.key) == (b"\x00\xff", "7")


def test_a_refused_message_is_sent_again_and_holds_back_its_key_alone(
    adapter: ScriptedAdapter, engine: Engine
) -> None:
    """It is told, later ones of its key wait for it, others overtake it, and its id stays."""
    heard = Heard()
    adapter.fail_next("publish", BrokerRefused("no queue"))
    with running(app(adapter, engine, ship), observers=[heard]):
        adapter.deliver(order(1, key="a"))
        heard.wait_for("outbox_refused")
        adapter.deliver(order(2, key="a"))
        adapter.deliver(order(3, key="b"))
        adapter.wait_until(lambda a: sent(a) == ["o3"])
        with engine.connect() as connection:
            rows = outbox.of_key(connection, "shop", "a")
        assert [(row["attempts"], row["error"]) for row in rows] == [
            (1, "BrokerRefused: no queue"),
            (0, None),
        ]
        adapter.wait_until(lambda a: len(a.published) == 3)
        assert emptied(engine)
    assert sent(adapter) == ["o3", "o1", "o2"]


def test_messages_of_a_dead_process_are_taken_over(adapter: ScriptedAdapter, engine: Engine) -> None:
    """In order, with the ids that they were stored with."""
    with engine.begin() as connection:
        now = make_app(adapter, None).clock.now()
        messages = [("shipped", TOPICS["shipped"].message({"id": f"o{n}", "key": "k"})) for n in range(3)]
        outbox.add(connection, outbox.Claim("shop", "dead", now), "shop.points", messages, now)
    with running(app(adapter, engine, ship)):
        adapter.wait_until(lambda a: len(a.published) == 3)
        assert emptied(engine)
    assert [sent.message.message_id for sent in adapter.published] == [own.message_id for _, own in messages]


def test_an_older_message_of_a_living_process_is_waited_for(adapter: ScriptedAdapter, engine: Engine) -> None:
    """Two processes publish for one key: the younger message is sent when the older row is gone."""
    with engine.begin() as connection:
        now = make_app(adapter, None).clock.now()
        claim = outbox.Claim("shop", "other", now + timedelta(seconds=60))
        older = TOPICS["shipped"].message({"id": "o0", "key": "k"})
        rows = outbox.add(connection, claim, "shop.points", [("shipped", older)], now)
    with running(app(adapter, engine, ship)):
        adapter.deliver(order(1))
        adapter.deliver(order(2, key="free"))
        adapter.wait_until(lambda a: sent(a) == ["o2"])
        with engine.begin() as connection:
            outbox.sent(connection, claim, [row.id for row in rows])
        adapter.wait_until(lambda a: sent(a) == ["o2", "o1"])
        assert emptied(engine)


def test_a_broker_that_is_away_does_not_hold_up_the_others(adapter: ScriptedAdapter, engine: Engine) -> None:
    """What a dead process left for another broker is taken over, although older messages fill up this process."""
    clock = SystemClock()
    publishing = Publishing({"main": adapter, "bank": adapter}, TOPICS, frozenset({"main", "bank"}))
    window = timedelta(minutes=1)
    relay = Relay("shop", engine, publishing, clock, Observers(()), str, window, nothing)
    away = [("shipped", TOPICS["shipped"].message({"id": f"o{n}", "key": f"k{n}"})) for n in range(2000)]
    other = ("billed", TOPICS["billed"].message({"id": "b", "key": "k"}))
    with engine.begin() as connection:
        now = clock.now()
        outbox.add(connection, outbox.Claim("shop", "dead", now), "shop.points", [*away, other], now)
    take_over = relay.task(every=window).run
    while take_over(engine):
        pass
    with engine.connect() as connection:
        rows = connection.execute(
            select(outbox.TABLE.c.topic).where(outbox.TABLE.c.owner != "dead").order_by(outbox.TABLE.c.id)
        )
        topics = list(rows.scalars())
    publishing.open()
    relay.stop(grace=timedelta(seconds=10))
    assert (topics[-1], len(topics)) == ("billed", 1001)


def test_a_relay_that_fails_after_the_commit_changes_nothing(
    adapter: ScriptedAdapter, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is committed is acknowledged; what was published waits in the outbox until someone takes it over."""

    def fail(relay: Relay, run: Run) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Relay, "committed", fail)
    with running(app(adapter, engine, ship)):
        for number in (1, 2):
            adapter.deliver(order(number))
        adapter.wait_until(lambda a: len(a.acknowledged) == 2)
    assert effects(engine) == ["o1", "o2"]


def test_what_waits_here_and_is_taken_over_again_is_sent_once(engine: Engine) -> None:
    """While a broker is away rows wait in memory until they are due, and are taken over by the very same process."""
    published: list[str | None] = []

    def publish(topic: str, messages: Sequence[OutgoingMessage]) -> list[BrokerError | None]:
        del topic
        published.extend(message.message_id for message in messages)
        return [None] * len(messages)

    clock = SystemClock()
    claim = outbox.Claim("shop", "me", clock.now() + timedelta(minutes=1))
    messages = [
        ("shipped", TOPICS["shipped"].message({"id": f"o{n}", "key": key})) for n, key in enumerate("kkl")
    ]
    with engine.begin() as connection:
        rows = outbox.add(connection, claim, "shop.points", messages, clock.now())
    post = BrokerSender(
        "main", engine, claim, publish, clock, Observers(()), str, DueIn(timedelta(0)), nothing
    )
    post.put(rows)
    post.put(rows)
    post.finish()
    post.start()
    post.join(10)
    assert sorted(published) == sorted(message.message_id for _, message in messages)


def test_what_is_confirmed_while_more_waits_is_deleted_with_the_next_round(engine: Engine) -> None:
    """A row that comes in again while it is being sent is sent once, and the outbox is empty afterwards."""
    published: list[str] = []

    def publish(topic: str, messages: Sequence[OutgoingMessage]) -> list[BrokerError | None]:
        del topic
        if not published:
            sender.put(rows)
        published.extend(str(message.message_id) for message in messages)
        return [None] * len(messages)

    clock = SystemClock()
    claim = outbox.Claim("shop", "me", clock.now() + timedelta(minutes=1))
    messages = [
        ("shipped", TOPICS["shipped"].message({"id": f"o{n}", "key": key})) for n, key in enumerate("klm")
    ]
    with engine.begin() as connection:
        rows = outbox.add(connection, claim, "shop.points", messages, clock.now())
    sender = BrokerSender(
        "main", engine, claim, publish, clock, Observers(()), str, DueIn(timedelta(0)), nothing
    )
    sender.put(rows[:2])
    assert sender.step()
    assert published == [message.message_id for _, message in messages]
    assert waiting(engine) == 0


def test_a_topic_that_is_gone_keeps_its_messages(adapter: ScriptedAdapter, engine: Engine) -> None:
    """A deployment that dropped a topic shows what it owes, and sends everything else."""
    heard = Heard()
    with engine.begin() as connection:
        now = make_app(adapter, None).clock.now()
        message = TOPICS["shipped"].message({"id": "o0", "key": "k"})
        outbox.add(connection, outbox.Claim("shop", "dead", now), "shop.points", [("former", message)], now)
    with running(app(adapter, engine, ship), observers=[heard]):
        heard.wait_for("outbox_refused")
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: sent(a) == ["o1"])
        with engine.connect() as connection:
            rows = outbox.of_key(connection, "shop", "k")
        (row,) = [row for row in rows if row["topic"] == "former"]
    assert "unknown topic 'former'" in str(row["error"])


@pytest.mark.parametrize("name", [*OUTBOX_POINTS])
def test_the_point_between_confirmation_and_deletion_is_passed(
    adapter: ScriptedAdapter, engine: Engine, name: str
) -> None:
    """A test may kill the process there: the row is still in the outbox, the message at its broker."""
    passed: list[tuple[str, int, int]] = []

    def point(at: str) -> None:
        if at == name:
            passed.append((at, len(adapter.published), waiting(engine)))

    with running(app(adapter, engine, ship), point=point):
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(a.published) == 1)
        assert emptied(engine)
    assert (name, 1, 1) in passed


@pytest.mark.parametrize(("error", "most"), [(BrokerUnavailable("away"), 30.0), (BrokerRefused("no"), 300.0)])
def test_an_outage_leaves_no_long_pauses_behind(
    adapter: ScriptedAdapter, engine: Engine, error: BrokerError, most: float
) -> None:
    """Rows that were tried often while their broker was away are due soon; those that it refused have growing pauses."""
    adapter.fail_next("publish", error)
    with engine.begin() as connection:
        now = make_app(adapter, None).clock.now()
        sent = [("shipped", TOPICS["shipped"].message({"id": "o1", "key": "k"}))]
        [row] = outbox.add(connection, outbox.Claim("shop", "dead", now), "shop.points", sent, now)
        connection.execute(update(outbox.TABLE).where(outbox.TABLE.c.id == row.id).values(attempts=12))
    with running(app(adapter, engine, ship)):
        written = select(outbox.TABLE.c.due_at).where(outbox.TABLE.c.attempts > 12)

        def due() -> Any:
            with engine.connect() as connection:
                return connection.execute(written).scalar()

        eventually(due, "the row to be written after its refusal")
        assert most / 2 < (due() - now).total_seconds() < 1.3 * most + 20


def test_each_refused_row_says_its_own_error(adapter: ScriptedAdapter, engine: Engine) -> None:
    """Two of a call that failed for different reasons are told apart."""
    adapter.fail_next("publish", BrokerRefused("too large"))
    adapter.fail_next("publish", BrokerRefused("no permission"))
    with engine.begin() as connection:
        now = make_app(adapter, None).clock.now()
        messages = [("shipped", TOPICS["shipped"].message({"id": f"o{n}", "key": f"k{n}"})) for n in range(2)]
        outbox.add(connection, outbox.Claim("shop", "dead", now), "shop.points", messages, now)

    def errors() -> list[str]:
        with engine.connect() as connection:
            return list(connection.scalars(select(outbox.TABLE.c.error).order_by(outbox.TABLE.c.id)))

    with running(app(adapter, engine, ship)):
        eventually(lambda: all(errors()), "both errors")
        assert errors() == ["BrokerRefused: too large", "BrokerRefused: no permission"]
