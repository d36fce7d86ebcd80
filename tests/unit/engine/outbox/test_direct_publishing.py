"""What a handler publishes whose effects are outside the database: confirmed before its message is acknowledged."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine

from oncemq.contracts.checks import Effects
from oncemq.contracts.publisher import Publisher
from oncemq.errors import BrokerRefused, HandlerFault, Retry
from oncemq.testing.scripted import ScriptedAdapter
from support.benches.outbox import adapter, app, engine, order, sent, waiting
from support.database.databases import database
from support.engine import running

__all__ = ["adapter", "database", "engine"]


# Direct units


def mail(body: dict[str, Any], publisher: Publisher) -> None:
    """Have an effect elsewhere and publish."""
    publisher.publish("shipped", body)
    if body.get("fault"):
        raise Retry("later")


async def mail_async(body: dict[str, Any], publisher: Publisher) -> None:
    """The same in an event loop."""
    mail(body, publisher)


@pytest.fixture(params=[mail, mail_async])
def direct(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """A handler with external effects."""
    return request.param


def test_a_direct_handler_publishes_before_its_message_is_acknowledged(
    adapter: ScriptedAdapter, direct: Callable[..., Any]
) -> None:
    """The broker has confirmed when the acknowledgement goes out; no database is needed."""
    order_of_calls: list[str] = []
    publish, acknowledge = adapter.publish, adapter.acknowledge
    vars(adapter)["publish"] = lambda *given: order_of_calls.append("publish") or publish(*given)
    vars(adapter)["acknowledge"] = lambda given: order_of_calls.append("acknowledge") or acknowledge(given)
    with running(app(adapter, None, direct, effects=Effects.EXTERNAL)):
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(a.acknowledged) == 1)
    assert order_of_calls == ["publish", "acknowledge"]
    assert sent(adapter) == ["o1"]


def test_a_direct_handler_that_fails_publishes_nothing(
    adapter: ScriptedAdapter, direct: Callable[..., Any]
) -> None:
    """What it published before it failed is not sent."""
    with running(app(adapter, None, direct, effects=Effects.EXTERNAL)):
        adapter.deliver(order(1, fault="retry"))
        adapter.wait_until(lambda a: len(a.retried) == 1)
    assert adapter.published == []


def test_publishing_is_tried_again_without_the_handler(
    adapter: ScriptedAdapter,
) -> None:
    """A broker that is away for a moment does not repeat an effect that has happened."""
    calls: list[str] = []

    def once(body: dict[str, Any], publisher: Publisher) -> None:
        calls.append(body["id"])
        publisher.publish("shipped", body)

    adapter.fail_next("publish", times=2)
    with running(app(adapter, None, once, effects=Effects.EXTERNAL)):
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(a.acknowledged) == 1)
    assert (calls, sent(adapter)) == (["o1"], ["o1"])


def test_a_refused_message_of_a_direct_handler_is_an_attempt(
    adapter: ScriptedAdapter, direct: Callable[..., Any]
) -> None:
    """A broker that says no fails the message, whose retry says why."""
    adapter.fail_next("publish", BrokerRefused("no queue"))
    with running(app(adapter, None, direct, effects=Effects.EXTERNAL)):
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(a.retried) == 1)
    assert "no queue" in adapter.retried[0].headers["oncemq-error-text"]


# Mistakes


@pytest.mark.parametrize(
    ("topic", "given", "said"),
    [
        ("shiped", {"body": {"key": "k"}}, "did you mean 'shipped'"),
        ("shipped", {"body": {"id": 1}}, "a key is never invented"),
        ("shipped", {"body": {"key": "k"}, "key": "other"}, "make both the same"),
        ("shipped", {"body": {"key": "k"}, "headers": {"oncemq-attempt": "9"}}, "the framework's own"),
        ("shipped", {"body": {"key": object()}}, "is not JSON"),
        ("raw", {"body": b"", "headers": {"n": 1}}, "headers are text to text"),
        ("raw", {"body": b"", "message_id": ""}, "printable"),
    ],
)
def test_what_no_consumer_could_read_is_an_error_at_once(
    adapter: ScriptedAdapter, engine: Engine, topic: str, given: dict[str, Any], said: str
) -> None:
    """The handler's message fails, and says what to change; nothing lands in the outbox."""

    def wrong(body: dict[str, Any], publisher: Publisher) -> None:
        publisher.publish(topic, **given)

    with running(app(adapter, engine, wrong)):
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(a.retried) == 1)
    assert said in adapter.retried[0].headers["oncemq-error-text"]
    assert waiting(engine) == 0


def test_a_publisher_ends_with_its_unit(adapter: ScriptedAdapter, engine: Engine) -> None:
    """One that was kept would publish nothing, so it says so."""
    kept: list[Publisher] = []

    def keep(body: dict[str, Any], publisher: Publisher) -> None:
        kept.append(publisher)

    with running(app(adapter, engine, keep)):
        adapter.deliver(order(1))
        adapter.wait_until(lambda a: len(a.acknowledged) == 1)
    with pytest.raises(HandlerFault, match="after its handler's unit was over"):
        kept[0].publish("shipped", {"key": "k"})
