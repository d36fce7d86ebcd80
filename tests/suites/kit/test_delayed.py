"""Messages that handlers publish for later: they leave when they are due, and not if they were cancelled before."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from oncemq import App, Publisher, Reject, Unpublishable
from oncemq.testing import TestApp
from suites.kit.conftest import Bench, effects

WAIT = timedelta(seconds=2)


class Orders:
    """An app that looks again at each order after a while, unless it was paid before.

    Args:
        bench: runs it.
        more: of the topic with the reminders.
    """

    def __init__(self, bench: Bench, **more: Any) -> None:
        self.bench = bench
        self.reminders = bench.topic("reminders", **more)
        self.orders = bench.topic("orders")
        bench.consume(self.reminders, bench.apply, name="remind")
        bench.consume(self.orders, self.handle, name="order")
        self.app: TestApp = bench.start()

    def handle(self, body: dict[str, Any], publisher: Publisher) -> None:
        """Publish for later, cancel, or both, as the body says."""
        if "delay" in body:
            publisher.publish(self.reminders, {"id": body["id"], "key": body["key"]}, delay=body["delay"])
        if "at" in body:
            at = datetime.fromisoformat(body["at"])
            publisher.publish(self.reminders, {"id": body["id"], "key": body["key"]}, at=at)
        if "cancel" in body:
            publisher.cancel(self.reminders, key=body["cancel"])
        if body.get("fails"):
            raise Reject("no")


@pytest.fixture
def shop(bench: Bench) -> Orders:
    """Return the running app."""
    return Orders(bench)


def test_a_delayed_message_takes_effect_when_it_is_due(shop: Orders) -> None:
    """Not before; and once."""
    assert shop.app.publish(shop.orders, {"id": "a", "key": "k", "delay": 2}).applied
    assert (effects(shop.app), shop.app.published()) == ([], [])
    shop.app.clock.advance("4s")
    assert effects(shop.app) == ["a"]


def test_a_moment_may_be_given_instead(shop: Orders) -> None:
    """`at=` is the same moment for every process."""
    at = shop.app.clock.now() + WAIT
    assert shop.app.publish(shop.orders, {"id": "a", "key": "k", "at": at.isoformat()}).applied
    assert effects(shop.app) == []
    shop.app.clock.advance("4s")
    assert effects(shop.app) == ["a"]


def test_a_moment_that_is_over_means_now(shop: Orders) -> None:
    """A message that was handled late is not lost."""
    at = shop.app.clock.now() - WAIT
    shop.app.publish(shop.orders, {"id": "a", "key": "k", "at": at.isoformat()})
    assert effects(shop.app) == ["a"]


def test_a_cancelled_message_is_never_sent(shop: Orders) -> None:
    """The cancellation is by key; other keys are not touched."""
    shop.app.publish(shop.orders, {"id": "a", "key": "k", "delay": 2})
    shop.app.publish(shop.orders, {"id": "b", "key": "l", "delay": 2})
    assert shop.app.publish(shop.orders, {"id": "c", "key": "k", "cancel": "k"}).applied
    shop.app.clock.advance("4s")
    assert effects(shop.app) == ["b"]


def test_a_handler_that_fails_neither_delays_nor_cancels(shop: Orders) -> None:
    """Both are part of its transaction."""
    shop.app.publish(shop.orders, {"id": "a", "key": "k", "delay": 2})
    outcome = shop.app.publish(shop.orders, {"id": "b", "key": "k", "delay": 2, "cancel": "k", "fails": True})
    assert outcome.dead_letter
    shop.app.clock.advance("4s")
    assert effects(shop.app) == ["a"]


def test_a_delayed_message_holds_its_key_back_no_longer(shop: Orders) -> None:
    """A message of the same key that is published later, and at once, does not wait for it."""
    shop.app.publish(shop.orders, {"id": "a", "key": "k", "delay": 30})
    shop.app.publish(shop.orders, {"id": "b", "key": "k", "delay": 0})
    assert effects(shop.app) == ["b"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"delay": timedelta(seconds=-1)}, "must not be negative"),
        ({"delay": "soon"}, "is not a duration"),
        ({"delay": True}, "not bool"),
        ({"delay": timedelta(days=4000)}, "longer than 3650 days"),
        ({"at": datetime(2030, 1, 1)}, "has no time zone"),
        ({"at": "tomorrow"}, "a moment is a datetime"),
        ({"delay": 1, "at": datetime.fromisoformat("2030-01-01T00:00:00Z")}, "leave one out"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value,
)
def test_a_wrong_delay_is_refused_where_it_is_given(given: dict[str, Any], says: str) -> None:
    """With the value, the topic and what is wrong; nothing is published."""
    problems: list[str] = []

    def handle(body: dict[str, Any], publisher: Publisher) -> None:
        with pytest.raises(Unpublishable) as refused:
            publisher.publish(body["topic"], {"id": "a", "key": "k"}, **given)
        problems.append(str(refused.value))

    app, topic = _in_memory(handle)
    with app:
        assert app.publish(topic, {"id": "a", "key": "k", "topic": topic}).applied
        app.clock.advance("1h")
        assert app.published() == []
    assert says in problems[0]


def _in_memory(handle: Any, **options: Any) -> tuple[TestApp, str]:
    database = options.pop("database", "sqlite://")
    broker = options.pop("broker", "embedded:///unused.db")
    app = App("delays", brokers={"main": broker}, **({"database": database} if database else {}))
    app.topic("orders", key="body.key", identity=["body.id"], **options)
    strategies = ["unique_key"] if database else ["none"]
    app.consumer(topic="orders", strategies=strategies, effects="database" if database else "external")(
        handle
    )
    return TestApp(app), "orders"


def test_an_external_handler_delays_by_the_database(bench: Bench) -> None:
    """Without a transaction of its own, too: stored when it has returned."""
    reminders, orders = bench.topic("reminders"), bench.topic("orders", strategies=["none"])

    def handle(body: dict[str, Any], publisher: Publisher) -> None:
        publisher.publish(reminders, {"id": body["id"], "key": "k"}, delay=2)
        publisher.publish(reminders, {"id": "never", "key": "l"}, delay=2)
        publisher.cancel(reminders, key="l")

    bench.consume(reminders, bench.apply, name="remind")
    bench.consume(orders, handle, name="order", effects="external")
    app = bench.start()
    app.publish(orders, {"id": "a", "key": "k"})
    assert effects(app) == []
    app.clock.advance("4s")
    assert effects(app) == ["a"]


def test_without_a_database_an_exact_broker_delays() -> None:
    """The broker gets the message at once, with what is left of the delay."""
    done: list[str] = []

    def handle(body: dict[str, Any], publisher: Publisher) -> None:
        done.append(body["id"])
        if body["id"] == "a":
            publisher.publish("orders", {"id": "b", "key": "k"}, delay="30m")

    app, topic = _in_memory(handle, database=None)
    with app:
        app.publish(topic, {"id": "a", "key": "k"})
        app.clock.advance("29m")
        assert done == ["a"]
        app.clock.advance("2m")
    assert done == ["a", "b"]


def test_a_topic_may_leave_delays_to_its_broker() -> None:
    """`delay_by: broker`: the transaction stores it, the broker holds it back, and cancelling is refused."""
    refused: list[str] = []

    def handle(body: dict[str, Any], publisher: Publisher) -> None:
        if body["id"] != "a":
            return
        publisher.publish("orders", {"id": "b", "key": "k"}, delay="30m")
        with pytest.raises(Unpublishable) as error:
            publisher.cancel("orders", key="k")
        refused.append(str(error.value))

    app, topic = _in_memory(handle, delay_by="broker")
    with app:
        app.publish(topic, {"id": "a", "key": "k"})
        (sent,) = app.published()
        assert not sent.outcome.applied
        app.clock.advance("31m")
        assert sent.outcome.applied
    assert "cannot be cancelled" in refused[0]


def test_without_database_and_timer_a_delay_is_refused() -> None:
    """RabbitMQ has no exact timer: the handler is told so, with what to do."""
    problems: list[str] = []

    def handle(body: dict[str, Any], publisher: Publisher) -> None:
        with pytest.raises(Unpublishable) as refused:
            publisher.publish("orders", {"id": "b", "key": "k"}, delay="30m")
        problems.append(str(refused.value))

    app, topic = _in_memory(handle, database=None, broker="amqp://localhost/")
    with app:
        app.publish(topic, {"id": "a", "key": "k"})
    assert "add database:" in problems[0]
