"""Partitioned topics on a real RabbitMQ: members share the partitions, hand them over in order, and keep keys apart."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from time import monotonic, sleep
from typing import Any

import pytest

from oncemq.contracts.adapter import DeadLetterRequest, Refused, Subscription
from oncemq.contracts.capabilities import Capabilities
from oncemq.errors import BrokerRefused
from oncemq.message.envelope import Delivery, OutgoingMessage
from oncemq.testing.adapter_suite import Lifecycle, Losing, Topic
from oncemq.testing.adapter_suite.holder import Holder
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rabbitmq import RabbitMQAdapter
from oncemq_adapters.rabbitmq.consuming import partitions
from oncemq_adapters.rabbitmq.topology.declare import queue_exists
from support.brokers.rabbitmq import ProxiedRabbitMQ, adapter_on, connect

PATIENCE = 20.0


class PartitionedRabbitMQ(ProxiedRabbitMQ):
    """The shared server, where every topic has partitions."""

    @property
    def capabilities(self) -> Capabilities:
        """As of every broker whose members share a topic by its queues."""
        return replace(super().capabilities, partitioned=True)

    def topic(self, name: str) -> Topic:
        """Return a fresh topic of one partition, so that messages without keys keep their order."""
        return Topic(super().topic(name).name, {"partitions": 1})


class TestPartitionedRabbitMQ(Lifecycle, Losing):
    """A partitioned topic passes the parts of the adapter suite that concern members and losses."""

    # The messages that the dead member had not fetched were never delivered, so they are not flagged.
    test_killed_process_loses_nothing = None  # type: ignore[assignment]

    @pytest.fixture
    def harness(self, rabbitmq_url: str) -> Iterator[PartitionedRabbitMQ]:
        """Return a proxy of this test's own before the shared server."""
        harness = PartitionedRabbitMQ(rabbitmq_url, {"queue_type": "classic"})
        yield harness
        harness.proxy.close()


class Group:
    """Members of one group on a fresh topic; all are closed at the end."""

    def __init__(self, url: str, topic: str, **options: Any) -> None:
        self._url = url
        self.topic = topic
        self.options: dict[str, Any] = {"partitions": 8, "queue_type": "classic", **options}
        self._open: list[RabbitMQAdapter] = []

    def subscription(self, **options: Any) -> Subscription:
        """Return the group's subscription."""
        return Subscription("part", self.topic, "group", {**self.options, **options})

    def adapter(self) -> RabbitMQAdapter:
        """Return an adapter that is closed at the end."""
        adapter = adapter_on(self._url)
        self._open.append(adapter)
        return adapter

    def join(self) -> "Member":
        """Return a member that consumes."""
        member = Member(self.adapter())
        member.adapter.open([self.subscription()], member.sink)
        return member

    def publish(self, *messages: tuple[str, int], **options: Any) -> Sequence[Any]:
        """Publish numbered messages of keys."""
        sent = [OutgoingMessage(f"{key} {number}".encode(), key=key) for key, number in messages]
        return self.adapter().publish(self.topic, {**self.options, **options}, sent)

    def close(self) -> None:
        """Close all."""
        for adapter in self._open:
            adapter.close(grace=timedelta(seconds=2))


class Member:
    """An adapter and what it received."""

    def __init__(self, adapter: RabbitMQAdapter) -> None:
        self.adapter = adapter
        self.sink = RecordingSink()

    def texts(self) -> list[str]:
        """Return what was received, in order."""
        return [body.decode() for body in self.sink.bodies()]

    def settle(self, deliveries: Sequence[Delivery] | None = None) -> None:
        """Acknowledge all that was received, or these."""
        mine = self.sink.deliveries() if deliveries is None else deliveries
        assert not self.adapter.acknowledge([delivery for delivery in mine if not delivery.settled])

    def parts(self) -> Sequence[Any]:
        """Return the partitions."""
        consuming: Any = self.adapter._consuming
        (part,) = consuming._parts.values()
        parts: Sequence[Any] = part.parts
        return parts

    def share(self) -> set[int]:
        """Return the partitions whose channel it has."""
        return {number for number, each in enumerate(self.parts()) if each.held and each.wanted}

    def leave(self) -> None:
        """Close it in order."""
        self.adapter.close(grace=timedelta(seconds=5))


def eventually(reached: Callable[[], bool], wanted: str) -> None:
    """Wait for a state that has no signal."""
    deadline = monotonic() + PATIENCE
    while not reached():
        assert monotonic() < deadline, f"waited {PATIENCE} s for {wanted}"
        sleep(0.02)


@pytest.fixture
def group(rabbitmq_url: str, fresh: str) -> Iterator[Group]:
    """Return a group of a topic with eight partitions."""
    group = Group(rabbitmq_url, fresh)
    yield group
    group.close()


def numbered(keys: int, each: int) -> list[tuple[str, int]]:
    """Return messages of several keys, interleaved."""
    return [(f"key-{key}", number) for number in range(each) for key in range(keys)]


def test_two_members_share_the_partitions_evenly(group: Group) -> None:
    """Each has half of them, and every message arrives at exactly one member."""
    first, second = group.join(), group.join()
    eventually(lambda: len(first.share()) == len(second.share()) == 4, "even shares")
    assert first.share() | second.share() == set(range(8))
    group.publish(*numbered(keys=40, each=2))
    eventually(lambda: len(first.texts()) + len(second.texts()) == 80, "all messages")
    assert first.texts()
    assert second.texts()
    assert not set(first.texts()) & set(second.texts())


def test_the_messages_of_a_key_arrive_in_order(group: Group) -> None:
    """They lie in one queue, whichever of our processes published them."""
    group.adapter().prepare([group.subscription()])
    group.publish(*numbered(keys=10, each=10))
    member = group.join()
    member.sink.wait_for(100)
    found = defaultdict(list)
    for key, number in map(str.split, member.texts()):
        found[key].append(int(number))
    assert set(map(tuple, found.values())) == {tuple(range(10))}


def test_a_partition_is_given_up_only_when_what_runs_is_settled(group: Group) -> None:
    """A new member receives no message of a partition while the former one has not settled what it began."""
    first = group.join()
    group.publish(*numbered(keys=40, each=1))
    held = first.sink.wait_for(40)
    second = group.join()
    eventually(lambda: _wanted(first) == 4, "the first member to give up four partitions")
    group.publish(*[(key, 1) for key, _ in numbered(keys=40, each=1)])
    assert second.sink.stays_at(0, 0.5)
    first.settle(held)
    eventually(lambda: len(second.texts()) + len(first.texts()) == 80, "what was published after that")
    assert all(text.endswith(" 1") for text in second.texts())
    assert second.texts()


def _wanted(member: Member) -> int:
    return sum(each.wanted for each in member.parts())


def test_what_was_not_begun_goes_on_in_order_at_the_next_member(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deliveries that the engine returns are requeued before another member gets any later one."""
    first = group.join()
    group.publish(*numbered(keys=20, each=5))
    held = first.sink.wait_for(100)
    generations: dict[int, list[Delivery]] = defaultdict(list)
    for delivery in held:
        generations[delivery.generation].append(delivery)
    monkeypatch.setattr(first.sink, "release", lambda _consumer, generation: generations.pop(generation, []))
    second = group.join()
    group.publish(*[(f"key-{key}", 5) for key in range(20)])
    eventually(lambda: len(second.share()) == 4, "the second member's share")
    kept = {delivery.message.keys[0] for held in generations.values() for delivery in held}
    moved = {f"key-{key}" for key in range(20)} - kept
    assert moved
    second.sink.wait_for(6 * len(moved))
    found = defaultdict(list)
    for key, number in map(str.split, second.texts()):
        found[key].append(int(number))
    assert found == {key: list(range(6)) for key in moved}


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
@pytest.mark.parametrize("way", ["leaves", "pauses"])
def test_what_a_member_had_not_begun_comes_before_what_waits_in_the_queue(
    rabbitmq_url: str, fresh: str, queue_type: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next consumer begins with the messages that the former one had in its window, and then gets the rest."""
    with closing(Group(rabbitmq_url, fresh, partitions=1, prefetch=8, queue_type=queue_type)) as group:
        member = group.join()
        group.publish(*numbered(keys=1, each=40))
        member.settle(member.sink.wait_for(8)[:4])
        member.sink.wait_for(12)
        connection = connect(rabbitmq_url)
        channel = connection.channel()
        channel.basic_qos(prefetch_count=8)
        (place,) = member.parts()
        # It waits in the line of the queue's consumers, as a member does that has heard of a change first.
        following = channel.consume(place.place.queue, inactivity_timeout=PATIENCE)
        assert next(channel.consume(place.place.queue, inactivity_timeout=0.1))[0] is None
        if way == "leaves":
            member.leave()
        else:
            unsettled = [delivery for delivery in member.sink.deliveries() if not delivery.settled]
            monkeypatch.setattr(member.sink, "release", lambda *_: unsettled)
            member.adapter.pause("part")
        texts = []
        for method, _, body in islice(following, 36):
            channel.basic_ack(method.delivery_tag)
            texts.append(body.decode())
        connection.close()
        assert texts == [f"key-0 {number}" for number in range(4, 40)]


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
@pytest.mark.parametrize("way", ["goes on", "leaves"])
def test_what_a_member_gives_back_comes_before_what_it_had_received_later(
    rabbitmq_url: str, fresh: str, queue_type: str, way: str
) -> None:
    """A message that is requeued by itself would be delivered behind those that were on their way."""
    with closing(Group(rabbitmq_url, fresh, partitions=1, prefetch=8, queue_type=queue_type)) as group:
        member = group.join()
        group.publish(*numbered(keys=1, each=20))
        member.settle(member.sink.wait_for(8)[:4])
        held = member.sink.wait_for(12)
        assert member.adapter.give_back(held[4:8]) == []
        if way == "leaves":
            member.leave()
            again = group.join().sink.wait_for(8)
        else:
            assert member.adapter.give_back(held[8:]) == []
            again = member.sink.wait_for(20)[12:]
        assert [delivery.message.body.decode() for delivery in again[:8]] == [
            f"key-0 {number}" for number in range(4, 12)
        ]


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_what_comes_back_twice_keeps_its_order(
    rabbitmq_url: str, fresh: str, queue_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member that joined first had more partitions when it began with the one that comes back: its window is no smaller."""
    with closing(Group(rabbitmq_url, fresh, partitions=2, prefetch=8, queue_type=queue_type)) as group:
        stays, leaves = group.join(), group.join()
        eventually(
            lambda: [sum(part.held for part in each.parts()) for each in (stays, leaves)] == [1, 1], "shares"
        )
        group.publish(*numbered(keys=8, each=10))
        leaves.sink.wait_for(4)
        here = len(stays.sink.wait_for(4))
        leaves.leave()
        eventually(lambda: len(stays.texts()) >= here + 4, "what came back")
        monkeypatch.setattr(stays.sink, "release", lambda *_: stays.sink.deliveries())
        takes = group.join()
        stays.adapter.pause("part")
        for count in range(4, 84, 4):
            takes.settle(takes.sink.wait_for(count)[:count])
        found = defaultdict[str, list[int]](list)
        for key, _, number in (text.partition(" ") for text in takes.texts()):
            found[key].append(int(number))
        assert found == {f"key-{key}": list(range(10)) for key in range(8)}


def test_a_member_runs_what_came_back_before_it_gives_a_partition_up(
    rabbitmq_url: str, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its window is smaller than that of the member before: what it returned would come behind the rest of that."""
    with closing(Group(rabbitmq_url, fresh, partitions=1, prefetch=8, queue_type="quorum")) as group:
        first = group.join()
        group.publish(*numbered(keys=1, each=20))
        first.sink.wait_for(8)
        first.leave()
        group.options["prefetch"] = 3
        second = group.join()
        (part,) = second.parts()
        second.sink.wait_for(3)
        monkeypatch.setattr(part, "want", lambda: None)
        part._link.post(part.give_up)

        def given_up() -> bool:
            second.settle()
            return not part.held

        eventually(given_up, "the partition to be given up")
        third = group.join()
        second.leave()
        ran = [delivery for delivery in second.sink.deliveries() if delivery.settled]
        assert len(ran) >= 8
        texts = [delivery.message.body.decode() for delivery in [*ran, *third.sink.wait_for(3)]]
        assert texts == [f"key-0 {number}" for number in range(len(texts))]


def test_a_member_does_not_wait_for_ever_to_give_a_partition_up(
    rabbitmq_url: str, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came back and is not run, since its handler takes long, keeps the partition for some seconds only."""
    monkeypatch.setattr(partitions, "RETURNED_WITHIN", 0.3)
    with closing(Group(rabbitmq_url, fresh, partitions=1, prefetch=8, queue_type="quorum")) as group:
        first = group.join()
        group.publish(*numbered(keys=1, each=20))
        first.sink.wait_for(8)
        first.leave()
        second = group.join()
        second.sink.wait_for(8)
        monkeypatch.setattr(second.sink, "release", lambda *_: second.sink.deliveries())
        (part,) = second.parts()
        monkeypatch.setattr(part, "want", lambda: None)
        part._link.post(part.give_up)
        eventually(lambda: not part.held, "the partition to be given up")


def test_a_paused_member_leaves_its_partitions_to_the_others(group: Group) -> None:
    """The other member has all of them until the first one resumes."""
    first, second = group.join(), group.join()
    eventually(lambda: len(second.share()) == 4, "even shares")
    first.adapter.pause("part")
    eventually(lambda: len(second.share()) == 8, "the other member to have all")
    assert all(row.subscribed for row in first.adapter.health())
    first.adapter.resume("part")
    eventually(lambda: len(first.share()) == len(second.share()) == 4, "even shares again")


def test_a_member_that_leaves_is_replaced_at_once(group: Group) -> None:
    """It says so, and the others need not wait for its silence."""
    first, second = group.join(), group.join()
    eventually(lambda: len(second.share()) == 4, "even shares")
    first.leave()
    started = monotonic()
    eventually(lambda: len(second.share()) == 8, "the other member to have all")
    assert monotonic() - started < 3


def test_the_partitions_of_a_killed_member_go_to_the_others(rabbitmq_url: str, fresh: str) -> None:
    """They are taken over when it is not heard any more; what it held comes back."""
    harness = PartitionedRabbitMQ(rabbitmq_url, {"queue_type": "classic"})
    group = Group(rabbitmq_url, fresh)
    group.adapter().prepare([group.subscription()])
    group.publish(*numbered(keys=40, each=1))
    with Holder(harness, group.subscription(), count=40) as holder:
        holder.wait_until_holding(PATIENCE)
        member = group.join()
        holder.kill()
        member.sink.wait_for(40)
    assert len(set(member.texts())) == 40
    group.close()
    harness.proxy.close()


def test_another_number_of_partitions_is_refused_while_messages_wait(group: Group) -> None:
    """The start says where they wait; nothing is changed by it."""
    group.adapter().prepare([group.subscription()])
    group.publish(("a", 0))
    with pytest.raises(BrokerRefused, match=r"8 partitions and shall have 4, but 1 messages"):
        group.adapter().prepare([group.subscription(partitions=4)])
    group.publish(("a", 1))
    member = group.join()
    assert len(member.sink.wait_for(2)) == 2


def test_another_number_of_partitions_replaces_empty_ones(group: Group) -> None:
    """Publishers that still use the former number are refused instead of losing messages."""
    group.adapter().prepare([group.subscription()])
    group.adapter().prepare([group.subscription(partitions=4)])
    (answer,) = group.publish(("a", 0))
    assert isinstance(answer, Refused)
    group.options["partitions"] = 4
    member = group.join()
    group.publish(("a", 1))
    assert [delivery.message.body for delivery in member.sink.wait_for(1)] == [b"a 1"]


@pytest.mark.parametrize(("before", "after"), [(None, 4), (4, None)])
def test_a_single_queue_and_partitions_replace_each_other(
    group: Group, before: int | None, after: int | None
) -> None:
    """What waits in the former queues prevents the start; when they are empty they are removed."""
    group.options["partitions"] = before
    group.adapter().prepare([group.subscription()])
    group.publish(("a", 0))
    with pytest.raises(BrokerRefused, match="messages of a key would be handled in two places"):
        group.adapter().prepare([group.subscription(partitions=after)])
    member = group.join()
    member.sink.wait_for(1)
    member.settle()
    member.leave()
    group.options["partitions"] = after
    member = group.join()
    group.publish(("a", 1))
    assert [delivery.message.body for delivery in member.sink.wait_for(1)] == [b"a 1"]


def test_a_replayed_dead_letter_goes_to_the_partition_of_its_key(group: Group) -> None:
    """It comes back in the queue where the key's other messages are."""
    member = group.join()
    group.publish(("a", 0), ("b", 0), ("c", 0))
    held = member.sink.wait_for(3)
    queues = {delivery.message.keys[0]: delivery.token.intake.place.queue for delivery in held}
    dead = [DeadLetterRequest(delivery, {"oncemq-reason": "test"}) for delivery in held]
    assert not member.adapter.dead_letter(dead)
    letters = list(member.adapter.dead_letters(group.subscription(), 10))
    member.adapter.replay_dead_letters(group.subscription(), [letter.id for letter in letters])
    back = member.sink.wait_for(6)[3:]
    assert {each.message.keys[0]: each.token.intake.place.queue for each in back} == queues


def test_removing_a_group_removes_all_its_partitions(group: Group, rabbitmq_url: str) -> None:
    """The queues named by `private_names` are all that is needed."""
    adapter = group.adapter()
    adapter.prepare([group.subscription()])
    found = adapter.private_names(group.subscription())
    adapter.remove_places(found.broker, list(found.names))
    connection = connect(rabbitmq_url)
    assert not queue_exists(connection, f"group.{group.topic}.8-0")
    connection.close()
