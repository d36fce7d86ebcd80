"""Publishing many messages at once to a real RabbitMQ, of which some fail."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest

from oncemq.contracts.adapter import CONFIRMED, Adapter, DeadLetterRequest, Refused, RetryRequest
from oncemq.message import headers as names
from oncemq.message.envelope import OutgoingMessage
from oncemq.message.headers import PRIORITY
from oncemq_adapters.rabbitmq.publishing import confirms, publisher
from support.benches.rabbitmq_traps import (
    Open,
    eventually,
    open_adapter,
    properties_of,
    subscription_of,
)
from support.brokers.rabbitmq import adapter_on, connect

__all__ = ["open_adapter"]

AT_ONCE = publisher._AT_ONCE


@pytest.fixture
def adapter(rabbitmq_url: str) -> Iterator[Adapter]:
    """An adapter that publishes."""
    adapter = adapter_on(rabbitmq_url)
    yield adapter
    adapter.close(grace=timedelta(seconds=5))


@pytest.fixture
def queue(rabbitmq_url: str, fresh: str) -> Iterator[str]:
    """A queue of its own."""
    with connect(rabbitmq_url) as connection:
        connection.channel().queue_declare(fresh, durable=True)
        yield fresh
        connection.channel().queue_delete(fresh)


def bodies_in(url: str, queue: str) -> Counter[bytes]:
    """Return what a queue holds."""
    found = Counter[bytes]()
    with connect(url) as connection:
        channel = connection.channel()
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            found[got[2]] += 1
    return found


def numbered(count: int) -> list[OutgoingMessage]:
    """Return so many different messages."""
    return [OutgoingMessage(b"%d" % number) for number in range(count)]


def test_messages_of_several_parts_arrive_in_order(rabbitmq_url: str, adapter: Adapter, queue: str) -> None:
    """While the broker confirms some of a call's messages the next ones are sent, behind them."""
    messages = numbered(3 * AT_ONCE + 1)
    assert adapter.publish("t", {"queue": queue}, messages) == [CONFIRMED] * len(messages)
    assert list(bodies_in(rabbitmq_url, queue)) == [message.body for message in messages]


@pytest.mark.parametrize("places", [(6,), (6, AT_ONCE), (AT_ONCE - 1, AT_ONCE + 1)])
def test_no_other_part_is_charged_for_a_message_that_ends_the_connection(
    places: tuple[int, ...], rabbitmq_url: str, adapter: Adapter, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the single message of a last part, which was in flight beside it, is confirmed."""
    monkeypatch.setattr(confirms, "_size", lambda _properties, _most: 0)
    messages = numbered(AT_ONCE + max(1, places[-1] - AT_ONCE + 1))
    for place in places:
        messages[place] = OutgoingMessage(b"large", {"h": "x" * 200_000})
    answers = adapter.publish("t", {"queue": queue}, messages)
    assert tuple(at for at, answer in enumerate(answers) if isinstance(answer, Refused)) == places
    assert set(bodies_in(rabbitmq_url, queue)) == {
        message.body for at, message in enumerate(messages) if at not in places
    }


def test_urgent_messages_come_first_again_after_a_retry_and_a_replay(
    rabbitmq_url: str, fresh: str, open_adapter: Open
) -> None:
    """A queue with max_priority sorts what waits in it; copies keep the priority of their original."""
    options = {"exchange": fresh, "max_priority": 10, "queue_type": "classic"}
    subscription = subscription_of(fresh, in_flight=1, **options)
    publisher = adapter_on(rabbitmq_url)
    publisher.prepare([subscription])
    messages = [OutgoingMessage(b"%d" % level, {PRIORITY: f"{level}"}) for level in (0, 3, 9, 1)]
    delayed = OutgoingMessage(b"10", {PRIORITY: "10"}, delay=timedelta(milliseconds=1))
    assert publisher.publish(subscription.topic, options, [*messages, delayed]) == [CONFIRMED] * 5
    eventually(lambda: publisher.depth(subscription) == 5)
    publisher.close(grace=timedelta(seconds=5))
    adapter, sink = open_adapter(rabbitmq_url, subscription)
    for count in range(1, 5):
        adapter.acknowledge(sink.wait_for(count)[-1:])
    last = sink.wait_for(5)[-1]
    assert sink.bodies() == [b"10", b"9", b"3", b"1", b"0"]
    assert PRIORITY not in last.message.headers
    adapter.acknowledge([last])
    adapter.publish(subscription.topic, options, [messages[2]])
    assert not adapter.retry(
        [RetryRequest(sink.wait_for(6)[-1], timedelta(milliseconds=1), {names.ATTEMPT: "2"})]
    )
    retried = sink.wait_for(7)[-1]
    assert not adapter.dead_letter([DeadLetterRequest(retried, {names.REASON: "rejected"})])
    adapter.replay_dead_letters(subscription, [next(iter(adapter.dead_letters(subscription, 1))).id])
    replayed = sink.wait_for(8)[-1]
    assert [properties_of(found).priority for found in (retried, replayed)] == [9, 9]
