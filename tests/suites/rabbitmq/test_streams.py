"""Streams on a real RabbitMQ: read by one member of a group, from the position that the ledger keeps."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from time import monotonic, sleep
from typing import Any

import pytest
from pika import BasicProperties
from sqlalchemy import Engine, create_engine

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import DeadLetterRequest, RetryRequest, Subscription
from oncemq.errors import BrokerRefused, ConfigError
from oncemq.ledger import schema
from oncemq.ledger.coordination.broadcast import LedgerPositions
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.recording_sink import RecordingSink
from support.brokers.rabbitmq import ProxiedRabbitMQ, adapter_on, connect

PATIENCE = 20.0


class Member:
    """A process of a group: an adapter, what it received, and its own lease."""

    def __init__(self, stream: "Stream", group: str, url: str = "", **options: Any) -> None:
        self.adapter = adapter_on(url or stream.url)
        self.sink = RecordingSink()
        self.subscription = stream.subscription(group, **options)
        self.adapter.open([self.subscription], self.sink)

    def texts(self) -> list[str]:
        """Return what was received, in order."""
        return [body.decode() for body in self.sink.bodies()]

    def settle(self, count: int | None = None) -> None:
        """Acknowledge the first deliveries, or all."""
        mine = self.sink.deliveries()[:count]
        assert not self.adapter.acknowledge([delivery for delivery in mine if not delivery.settled])

    def leave(self) -> None:
        """Close it in order."""
        self.adapter.close(grace=timedelta(seconds=5))


class Stream:
    """A fresh stream, and groups that read it with positions in one ledger."""

    def __init__(self, url: str, name: str, ledger: Engine) -> None:
        self.url = url
        self.name = name
        self._ledger = ledger
        self._members: list[Member] = []
        with connect(url) as connection:
            connection.channel().queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})

    def subscription(self, group: str, **options: Any) -> Subscription:
        """Return a subscription with a lease of its own."""
        positions = LedgerPositions(f"app.{group}", self._ledger, SystemClock())
        topic = {"stream": self.name, "queue_type": "classic", **options}
        return Subscription("reads", f"{self.name}-topic", group, topic, 100, positions=positions)

    def join(self, group: str = "first", url: str = "", **options: Any) -> Member:
        """Return a member that consumes."""
        self._members.append(Member(self, group, url, **options))
        return self._members[-1]

    def add(self, *texts: str) -> None:
        """Append messages as a publisher that knows nothing of us."""
        with connect(self.url) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for text in texts:
                channel.basic_publish("", self.name, text.encode(), BasicProperties(message_id=text))

    def position(self, group: str = "first") -> Mapping[str, int]:
        """Return how far a group has read, as the ledger says."""
        return LedgerPositions(f"app.{group}", self._ledger, SystemClock()).read(self.name)

    def close(self) -> None:
        """Close all members, and delete the stream."""
        for member in self._members:
            member.leave()
        with connect(self.url) as connection:
            connection.channel().queue_delete(self.name)


def eventually(reached: Callable[[], bool], wanted: str) -> None:
    """Wait for a state that has no signal."""
    deadline = monotonic() + PATIENCE
    while not reached():
        assert monotonic() < deadline, f"waited {PATIENCE} s for {wanted}"
        sleep(0.02)


def numbers(*given: int) -> list[str]:
    """Return the texts of messages."""
    return [f"m{number}" for number in given]


@pytest.fixture
def ledger(tmp_path) -> Iterator[Engine]:
    """Return a database with the ledger's tables."""
    engine = create_engine(f"sqlite:///{tmp_path / 'ledger.db'}")
    schema.create(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def stream(rabbitmq_url: str, fresh: str, ledger: Engine) -> Iterator[Stream]:
    """Return a stream, deleted at the end."""
    found = Stream(rabbitmq_url, fresh, ledger)
    yield found
    found.close()


def test_a_group_reads_a_stream_from_its_beginning_and_goes_on_where_it_was(stream: Stream) -> None:
    """What was settled is not read again after an end in order; what was not is."""
    stream.add(*numbers(*range(10)))
    first = stream.join()
    first.sink.wait_for(10)
    first.settle(6)
    first.leave()
    assert stream.position() == {"": 6}
    second = stream.join()
    second.sink.wait_for(4)
    assert second.texts() == numbers(6, 7, 8, 9)
    assert second.sink.deliveries()[0].message.redelivered


def test_a_gap_keeps_the_position(stream: Stream) -> None:
    """The position never passes what is not settled, also when later ones are."""
    stream.add(*numbers(*range(10)))
    member = stream.join()
    found = member.sink.wait_for(10)
    assert not member.adapter.acknowledge([*found[:3], *found[5:]])
    eventually(lambda: stream.position() == {"": 3}, "the position")
    member.leave()
    assert stream.position() == {"": 3}


def test_each_group_reads_all(stream: Stream) -> None:
    """Groups have positions of their own."""
    stream.add(*numbers(0, 1))
    assert [stream.join(group).sink.wait_for(2)[1].message.body for group in ("first", "other")] == [
        b"m1"
    ] * 2


def test_one_member_reads_and_another_takes_over(stream: Stream) -> None:
    """A member that stands by is healthy, and goes on when the reader leaves."""
    reads, waits = stream.join(), stream.join()
    stream.add(*numbers(0, 1))
    eventually(lambda: len(reads.texts() + waits.texts()) == 2, "both messages")
    if waits.texts():
        reads, waits = waits, reads
    assert waits.sink.stays_at(0, 0.5)
    assert [row.subscribed for row in (*reads.adapter.health(), *waits.adapter.health())] == [True, True]
    reads.settle(1)
    reads.leave()
    waits.sink.wait_for(1)
    assert waits.texts() == numbers(1)


def test_a_lost_connection_voids_and_reads_again(rabbitmq_url: str, stream: Stream) -> None:
    """What was not settled when the connection broke comes again; what was settled does not."""
    harness = ProxiedRabbitMQ(rabbitmq_url, {})
    member = stream.join(url=harness.url)
    stream.add(*numbers(*range(6)))
    member.sink.wait_for(6)
    member.settle(4)
    eventually(lambda: stream.position() == {"": 4}, "the position")
    harness.cut()
    member.sink.wait_for(8)
    assert member.texts()[6:] == numbers(4, 5)
    assert [loss.alone for loss in member.sink.losses()] == [True, True]
    harness.proxy.close()


def test_what_is_given_back_is_read_again(stream: Stream) -> None:
    """A stream cannot requeue: it is read again from there once the rest is settled."""
    member = stream.join()
    stream.add(*numbers(0, 1, 2))
    found = member.sink.wait_for(3)
    assert not member.adapter.give_back(found[1:])
    member.settle(1)
    member.sink.wait_for(5)
    assert member.texts()[3:] == numbers(1, 2)


def test_a_retry_comes_back_to_its_group_alone(stream: Stream) -> None:
    """It waits in the group's own queues; the stream gets no copy."""
    member, other = stream.join(), stream.join("other")
    stream.add("m0")
    (delivery,) = member.sink.wait_for(1)
    other.sink.wait_for(1)
    assert not member.adapter.retry([RetryRequest(delivery, timedelta(0), {"oncemq-attempt": "2"})])
    again = member.sink.wait_for(2)[1].message
    assert (again.body, again.attempt, again.message_id) == (b"m0", 2, "m0")
    assert other.sink.stays_at(1, 0.3)
    member.settle()


def test_a_dead_letter_is_kept_and_replayed_to_its_group(stream: Stream) -> None:
    """As of a group with a queue."""
    member = stream.join()
    stream.add("m0")
    (delivery,) = member.sink.wait_for(1)
    assert not member.adapter.dead_letter([DeadLetterRequest(delivery, {})])
    (letter,) = member.adapter.dead_letters(member.subscription, 10)
    assert member.adapter.replay_dead_letters(member.subscription, [letter.id]) == 1
    assert member.sink.wait_for(2)[1].message.body == b"m0"


def test_a_new_group_may_begin_at_the_end(stream: Stream) -> None:
    """`start: last` leaves out what was there, and is stored at once."""
    stream.add(*numbers(0, 1))
    member = stream.join(start="last")
    eventually(lambda: stream.position() == {"": 2}, "the position")
    stream.add("m2")
    member.sink.wait_for(1)
    assert member.texts() == ["m2"]


def test_a_new_group_may_begin_at_a_time(stream: Stream) -> None:
    """Of a time to come, nothing that is there is read."""
    stream.add(*numbers(0, 1))
    past = stream.join(start=datetime(2020, 1, 1, tzinfo=UTC))
    past.sink.wait_for(2)
    stream.join("other", start=datetime.now(UTC) + timedelta(hours=1))
    eventually(lambda: stream.position("other") == {"": 2}, "the position")


def test_what_a_group_has_not_read_is_counted(stream: Stream) -> None:
    """Of a group that was never there, all; else what is behind its position."""
    stream.add(*numbers(*range(10)))
    subscription = stream.subscription("first")
    outside = adapter_on(stream.url)
    outside.prepare([subscription])
    assert outside.depth(subscription) == 10
    member = stream.join()
    member.sink.wait_for(10)
    member.settle(7)
    member.leave()
    assert (outside.depth(subscription), outside.backlog(subscription).ready) == (3, 3)


def test_publishing_appends_to_the_stream(stream: Stream) -> None:
    """A topic with a stream is published to like one with a queue."""
    member = stream.join()
    options = member.subscription.options
    sent = member.adapter.publish(member.subscription.topic, options, [OutgoingMessage(b"ours", key="k")])
    assert not isinstance(sent[0], BrokerRefused)
    (delivery,) = member.sink.wait_for(1)
    assert (delivery.message.body, delivery.message.keys) == (b"ours", ("k",))


def test_tries_that_a_producer_claims_are_not_believed(stream: Stream) -> None:
    """No copy of ours is in a stream, so what says so there is a stranger's."""
    member = stream.join()
    with connect(stream.url) as connection:
        forged = BasicProperties(message_id="m", headers={"oncemq-attempt": "99"})
        connection.channel().basic_publish("", stream.name, b"forged", forged)
    assert member.sink.wait_for(1)[0].message.attempt == 1


@pytest.mark.parametrize("claimed", ["nonsense", -5, 10**12])
def test_an_offset_that_a_producer_claims_is_not_believed(stream: Stream, claimed: str | int) -> None:
    """RabbitMQ writes the real one over it; nothing stops, and the position is right."""
    member = stream.join()
    with connect(stream.url) as connection:
        forged = BasicProperties(message_id="m", headers={"x-stream-offset": claimed})
        connection.channel().basic_publish("", stream.name, b"forged", forged)
    stream.add("m1")
    member.sink.wait_for(2)
    member.settle()
    eventually(lambda: stream.position() == {"": 2}, "the position")


def test_a_stream_that_was_made_again_is_said(stream: Stream) -> None:
    """Its offsets begin at 0 again, so nothing is read, and the health says what to do."""
    stream.add(*numbers(0, 1, 2))
    member = stream.join()
    member.sink.wait_for(3)
    member.settle()
    member.leave()
    with connect(stream.url) as connection:
        connection.channel().queue_delete(stream.name)
    again = Stream(stream.url, stream.name, stream._ledger)
    again.add("new")
    later = stream.join()
    eventually(lambda: "made again" in later.adapter.health()[0].detail, "the health")
    assert later.sink.stays_at(0, 0.3)


def test_a_paused_member_leaves_the_stream_to_another(stream: Stream) -> None:
    """It settles what it has, and the other goes on behind that."""
    member = stream.join()
    stream.add(*numbers(0, 1))
    member.sink.wait_for(2)
    other = stream.join()
    member.adapter.pause("reads")
    member.settle()
    stream.add("m2")
    other.sink.wait_for(1)
    assert other.texts() == ["m2"]


@pytest.mark.parametrize("there", ["nothing", "queue"])
def test_what_is_no_stream_is_refused(rabbitmq_url: str, fresh: str, ledger: Engine, there: str) -> None:
    """At the start, with advice."""
    if there == "queue":
        with connect(rabbitmq_url) as connection:
            connection.channel().queue_declare(fresh, durable=True)
    positions = LedgerPositions("app.first", ledger, SystemClock())
    subscription = Subscription("reads", f"{fresh}-topic", "first", {"stream": fresh}, positions=positions)
    advice = f"write queue: {fresh}" if there == "queue" else "declare it with x-queue-type: stream"
    with pytest.raises(BrokerRefused, match=advice):
        adapter_on(rabbitmq_url).prepare([subscription])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stream": "s", "queue": "q"}, "leave queue: or stream: out"),
        ({"stream": "s", "partitions": 4}, "leave partitions: or stream: out"),
        ({"start": "last"}, "add stream:, or leave start: out"),
        ({"stream": "s", "start": "sometime"}, "write first, last, or a time with its zone"),
    ],
)
def test_options_that_contradict_a_stream_are_refused(options: Mapping[str, Any], said: str) -> None:
    """Each says what to write instead."""
    with pytest.raises(ConfigError, match=said):
        adapter_on("amqp://127.0.0.1").private_names(Subscription("reads", "topic", "group", options))
