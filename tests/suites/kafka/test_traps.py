"""Kafka through the adapter: groups, rebalances, starts, keys and removed messages, on a real server."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.admin import AdminClient, NewPartitions

from oncemq.contracts.adapter import Confirmed, DeadLetterRequest, Refused, Subscription
from oncemq.errors import BrokerRefused
from oncemq.message import headers as names
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.adapter_suite import Topic
from oncemq.testing.adapter_suite.bench import Bench, Member, bodies, later, numbered
from oncemq_adapters.kafka import KafkaAdapter
from oncemq_adapters.kafka.address import Address, parse_address
from oncemq_adapters.kafka.administration import Administration
from oncemq_adapters.kafka.names import Place, place_of
from oncemq_adapters.kafka.producer import Producer
from oncemq_adapters.kafka.records import Record
from support.brokers.kafka import QUICK, SharedKafka, adapter_on


@pytest.fixture
def bench(kafka_url: str) -> Iterator[Bench]:
    """Yield a bench on the shared server."""
    bench = Bench(SharedKafka(kafka_url))
    yield bench
    bench.close_all()


def real(bench: Bench, subscription: Subscription) -> Place:
    """Return the names on the server."""
    return place_of(subscription, bench.harness.options["namespace"])


def operator(url: str) -> Administration:
    """Return a client that looks at the server from outside."""
    return Administration(parse_address(url, QUICK), "operator")


def stranger(url: str) -> Producer:
    """Return a producer that writes whatever it likes."""
    return Producer(parse_address(url, QUICK), "stranger")


def test_a_group_by_the_brokers_own_protocol(bench: Bench) -> None:
    """With `protocol: consumer` (KIP-848) the member joins, settles, and what was settled stays so."""
    options: dict[str, Any] = dict(bench.harness.options)
    del options["session_timeout"]

    def member() -> KafkaAdapter:
        return adapter_on(bench.harness.url, protocol="consumer", **options)

    topic = bench.topic()
    subscription = bench.subscription(topic)
    first = bench.open(subscription, adapter=member())
    bench.publish(topic, *numbered(10))
    bench.settled(first.adapter.acknowledge(bench.receive(first, 10)[:9]))
    bench.close(first)
    second = bench.open(subscription, adapter=member())
    assert len(bench.receive(second, 1)) == 1
    bench.nothing_more(second, 1)


def test_partitions_that_are_added_later_are_read_from_their_beginning(bench: Bench) -> None:
    """The group assigns them before the client has asked again what partitions there are, and they are asked for at once."""
    options: dict[str, Any] = dict(bench.harness.options)
    del options["session_timeout"]
    topic = bench.topic()
    subscription = bench.subscription(topic)
    member = bench.open(subscription, adapter=adapter_on(bench.harness.url, protocol="consumer", **options))
    name = real(bench, subscription).topic.name
    settings = parse_address(bench.harness.url, QUICK).client("operator")
    client = AdminClient(settings)
    client.create_partitions([NewPartitions(name, 4)])[name].result()
    writer = ConfluentProducer(settings)
    for partition in range(4):
        writer.produce(name, str(partition), partition=partition)
    assert writer.flush(bench.harness.patience) == 0
    assert sorted(bodies(bench.receive(member, 4))) == [b"0", b"1", b"2", b"3"]


def test_a_member_that_left_while_paused_receives_again(bench: Bench) -> None:
    """The client keeps a partition paused over its leaving and coming back; resumed, the member gets all of it."""
    topic = bench.topic()
    subscription = bench.subscription(topic)
    member = bench.open(subscription)
    client, place = operator(bench.harness.url), real(bench, subscription)
    member.adapter.pause(subscription.consumer)
    bench.eventually(lambda: not client.group(place.group).members, "the member to leave")
    bench.publish(topic, *(OutgoingMessage(body, key=body.decode()) for body in numbered(20)))
    member.adapter.resume(subscription.consumer)
    assert sorted(bodies(bench.receive(member, 20))) == sorted(numbered(20))


def test_a_new_member_takes_over_what_was_not_started(bench: Bench) -> None:
    """Deliveries that ran are settled by the former owner; what was given back is delivered by the next in its order."""
    topic = bench.topic()
    subscription = bench.subscription(topic)
    first = bench.open(subscription)
    bench.publish(topic, *(OutgoingMessage(body, key="one") for body in numbered(20)))
    held = bench.receive(first, 20)
    bench.settled(first.adapter.acknowledge(held[:5]))
    bench.settled(first.adapter.give_back(held[5:]))
    bench.close(first)
    second = bench.open(subscription)
    assert bodies(bench.receive(second, 15)) == numbered(20)[5:]


def test_a_partition_that_is_handed_over_voids_what_still_runs(bench: Bench) -> None:
    """After the time for a hand-over the deliveries of a revoked partition are void, and its next owner gets them."""
    topic = bench.topic()
    subscription = bench.subscription(topic)
    first = bench.open(subscription)
    bench.publish(topic, *(OutgoingMessage(body, key=body.decode()) for body in numbered(40)))
    held = bench.receive(first, 40)
    second = bench.open(subscription)
    losses = first.sink.wait_for_loss(bench.harness.patience)
    bench.eventually(lambda: len(second.sink.deliveries()) > 0, "the next owner to get a message")
    gone = {loss.generation for loss in losses}
    assert all(loss.alone for loss in losses)
    lost = [delivery for delivery in held if delivery.generation in gone]
    failed = first.adapter.acknowledge(held)
    assert {id(entry.delivery) for entry in failed} == {id(delivery) for delivery in lost}


def test_a_new_group_may_start_at_the_end(bench: Bench) -> None:
    """With `start: last` a group gets what is published after it was prepared, also while no member runs."""
    name, options = bench.topic()
    topic = Topic(name, {**options, "start": "last"})
    bench.prepare(bench.subscription(Topic(name, options), "others"))
    bench.publish(topic, b"before")
    subscription = bench.subscription(topic)
    bench.prepare(subscription)
    bench.publish(topic, b"after")
    assert bodies(bench.receive(bench.open(subscription), 1)) == [b"after"]


def test_a_new_group_may_start_at_a_time(bench: Bench) -> None:
    """With a time at `start` a new group gets what was published from then on, from each partition."""
    name, options = bench.topic()
    bench.prepare(bench.subscription(Topic(name, options), "others"))
    keys = numbered(12)
    bench.publish(Topic(name, options), *(OutgoingMessage(b"before", key=key.decode()) for key in keys))
    moment = datetime.now(UTC) + timedelta(milliseconds=20)
    bench.eventually(lambda: datetime.now(UTC) > moment, "that time")
    topic = Topic(name, {**options, "start": moment.isoformat()})
    bench.publish(topic, *(OutgoingMessage(b"after", key=key.decode()) for key in keys))
    found = bench.receive(bench.open(bench.subscription(topic)), 12)
    assert {delivery.message.body for delivery in found} == {b"after"}


def test_a_key_that_is_no_text_is_no_key_and_stays_in_every_copy(bench: Bench) -> None:
    """A binary key, a header without a value, one that is there twice and a missing value survive a dead letter and its replay."""
    topic = bench.topic()
    subscription = bench.subscription(topic)
    member = bench.open(subscription)
    headers = [("twice", b"1"), ("twice", b"\xff"), ("none", None), (names.ATTEMPT, b"99")]
    (error,) = stranger(bench.harness.url).send(
        [Record(real(bench, subscription).topic.name, b"\xff\x00", None, headers, 0)]
    )
    assert error is None
    (delivery,) = bench.receive(member, 1)
    assert (delivery.message.keys, delivery.message.body, delivery.message.attempt) == ((), b"", 1)
    bench.settled(member.adapter.dead_letter([DeadLetterRequest(delivery, {names.REASON: "no-key"})]))
    (letter,) = member.adapter.dead_letters(subscription, 10)
    assert member.adapter.replay_dead_letters(subscription, [letter.id]) == 1
    raw = bench.receive(member, 2)[1].token.raw
    assert (raw.key(), raw.value()) == (b"\xff\x00", None)
    assert [pair for pair in raw.headers() if pair[0] in ("twice", "none")] == headers[:3]


def test_one_message_that_is_too_large_is_refused_alone(bench: Bench) -> None:
    """The broker refuses its whole batch; the others are sent again and confirmed."""
    topic = bench.topic()
    bench.prepare(bench.subscription(topic))
    large = OutgoingMessage(uuid4().bytes * (20 * 1024 * 1024 // 16))
    messages = [OutgoingMessage(b"one"), large, OutgoingMessage(b"two")]
    publisher = bench.adopt(bench.harness.make_adapter(compression="none"))
    publisher.prepare([])
    found = publisher.publish(topic.name, topic.options, messages)
    assert [type(answer) for answer in found] == [Confirmed, Refused, Confirmed]
    assert isinstance(getattr(found[1], "error", None), BrokerRefused)


def test_a_missing_topic_is_not_made_by_publishing(bench: Bench) -> None:
    """The broker would make it on demand, and take messages that no group was made for."""
    nowhere = bench.topic("nowhere")
    answers = bench.publisher().publish(nowhere.name, nowhere.options, [OutgoingMessage(b"x")])
    assert isinstance(answers[0], Refused)
    name = f"{bench.harness.options['namespace']}{nowhere.name}"
    assert operator(bench.harness.url).partitions(name) == 0


def test_messages_removed_unread_are_passed(bench: Bench) -> None:
    """When retention has removed what a group has not read, it goes on at the first message that is left."""
    topic = bench.topic()
    subscription = bench.subscription(topic)
    bench.close(bench.open(subscription))
    bench.publish(topic, *(OutgoingMessage(body, key="one") for body in numbered(10)))
    client, place = operator(bench.harness.url), real(bench, subscription)
    name = place.topic.name
    ends = client.ends(name)
    client.set_offsets(place.group, [TopicPartition(name, number, 0) for number in ends])
    client.delete_before(name, {number: end - 2 for number, end in ends.items()})
    assert bodies(bench.receive(bench.open(subscription), 2)) == numbered(10)[8:]


def test_a_long_retry_does_not_hold_back_a_short_one_in_its_partition(bench: Bench) -> None:
    """Retries wait side by side: one that is due in a moment overtakes one that waits for seconds."""
    topic = bench.topic()
    member = bench.open(bench.subscription(topic))
    bench.publish(topic, b"slow", b"quick")
    by_body = {delivery.message.body: delivery for delivery in bench.receive(member, 2)}
    bench.settled(member.adapter.retry([later(by_body[b"slow"], 1.9), later(by_body[b"quick"], 0.1)]))
    assert bodies(bench.receive(member, 3)[2:]) == [b"quick"]
    assert bodies(bench.receive(member, 4)[3:]) == [b"slow"]


def test_what_a_purge_leaves_is_gone_from_the_topic(bench: Bench) -> None:
    """Purged letters at the topic's beginning are removed at once, not only marked."""
    topic = bench.topic()
    subscription = bench.subscription(topic)
    member = bench.open(subscription)
    bench.publish(topic, b"secret")
    bench.settled(member.adapter.dead_letter([DeadLetterRequest(bench.receive(member, 1)[0], {})]))
    (letter,) = member.adapter.dead_letters(subscription, 10)
    assert member.adapter.purge_dead_letters(subscription, [letter.id]) == 1
    client, dead = operator(bench.harness.url), real(bench, subscription).dead
    assert all(first == end for first, end in client.spans(dead).values())


def test_a_full_member_goes_on_polling(bench: Bench) -> None:
    """While nothing is settled, a member stays in its group and takes no more; afterwards it goes on where it was."""
    topic = bench.topic()
    member = bench.open(bench.subscription(topic, in_flight=3))
    bench.publish(topic, *(OutgoingMessage(body, key="one") for body in numbered(30)))
    held = bench.receive(member, 3)
    assert member.sink.stays_at(3, 1.5)
    for count in range(4, 31):
        bench.settled(member.adapter.acknowledge(held[-3:][:1]))
        held = bench.receive(member, count)
    assert bodies(held) == numbered(30)


def test_a_handler_longer_than_the_clients_poll_interval_loses_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group takes a member that does not poll for so long for stuck; ours polls while all it holds is at work."""
    usual = Address.member_of

    def restless(*arguments: Any) -> dict[str, Any]:
        return usual(*arguments) | {"max.poll.interval.ms": 1500}

    monkeypatch.setattr(Address, "member_of", restless)
    topic = bench.topic()
    options = {**bench.harness.options, "session_timeout": "1s"}
    member = bench.open(
        bench.subscription(topic, in_flight=3), adapter=adapter_on(bench.harness.url, **options)
    )
    bench.publish(topic, *(OutgoingMessage(body, key="one") for body in numbered(30)))
    held = bench.receive(member, 3)
    assert member.sink.stays_at(3, 3.5)
    assert bench.subscribed(member)
    bench.settled(member.adapter.acknowledge(held))
    assert bodies(bench.receive(member, 6)) == numbered(6)


def test_a_static_member_that_restarts_moves_no_partition(bench: Bench) -> None:
    """With `member` it comes back to what it had, and the other keeps its deliveries; nothing waits for a session's end."""
    topic = bench.topic()
    subscription = bench.subscription(topic)

    def start(name: str) -> Member:
        adapter = adapter_on(bench.harness.url, member=name, **bench.harness.options)
        return bench.open(subscription, adapter=adapter)

    place, client = real(bench, subscription), operator(bench.harness.url)

    def owners() -> dict[str, list[int]]:
        return {
            member.group_instance_id: sorted(
                each.partition
                for each in member.assignment.topic_partitions
                if each.topic == place.topic.name
            )
            for member in client.group(place.group).members
        }

    first, other = start("one"), start("two")
    bench.eventually(lambda: sorted(map(len, owners().values())) == [1, 1], "a partition for each")
    before = owners()
    bench.publish(topic, *(OutgoingMessage(body, key=body.decode()) for body in numbered(20)))
    bench.eventually(lambda: bool(other.sink.deliveries()), "work of the other")
    held = other.sink.deliveries()
    bench.close(first)
    assert owners() == before
    again = start("one")
    bench.eventually(lambda: bool(again.sink.deliveries()), "work after the restart")
    assert owners() == before
    bench.settled(other.adapter.acknowledge(held))


def test_the_group_is_known_to_kafkas_own_tools(bench: Bench) -> None:
    """Committed offsets are where every other client looks for them."""
    topic = bench.topic()
    subscription = bench.subscription(topic)
    member = bench.open(subscription)
    bench.publish(topic, *numbered(8))
    bench.settled(member.adapter.acknowledge(bench.receive(member, 8)))
    bench.close(member)
    client = operator(bench.harness.url)
    place = real(bench, subscription)
    committed = client.committed(place.group, place.topic.name)
    assert {number: partition.offset for number, partition in committed.items()} == client.ends(
        place.topic.name
    )
    assert OFFSET_END not in {partition.offset for partition in committed.values()}


def test_offsets_are_committed_while_members_join_and_leave(bench: Bench) -> None:
    """A commit that comes into a rebalance is sent again; when all is settled, all is committed, and members are in their group."""
    topic = bench.topic()
    subscription = bench.subscription(topic)
    first = bench.open(subscription)
    place, client = real(bench, subscription), operator(bench.harness.url)
    done: set[bytes] = set()
    resting = Event()

    def work(member: Member) -> None:
        settled = 0
        while not resting.wait(0.01):
            for delivery in member.sink.deliveries()[settled:]:
                settled += 1
                if not member.adapter.acknowledge([delivery]):
                    done.add(delivery.message.body)

    workers = [Thread(target=work, args=(first,))]
    workers[0].start()
    try:
        for turn in range(2):
            messages = numbered(120)[60 * turn : 60 * (turn + 1)]
            bench.publish(topic, *(OutgoingMessage(body, key=body.decode()) for body in messages))
            other = bench.open(subscription)
            workers.append(Thread(target=work, args=(other,)))
            workers[-1].start()
            if turn == 0:
                bench.close(other)
        bench.eventually(lambda: len(done) == 120, "every message to be settled")

        def committed() -> dict[int, int]:
            found = client.committed(place.group, place.topic.name)
            return {number: partition.offset for number, partition in found.items()}

        bench.eventually(lambda: committed() == client.ends(place.topic.name), "every offset")
    finally:
        resting.set()
        for worker in workers:
            worker.join()
    assert all(row.subscribed for row in first.adapter.health())


def test_a_delayed_message_is_refused(bench: Bench) -> None:
    """Kafka delays nothing; a message is not sent early instead."""
    topic = bench.topic()
    bench.prepare(bench.subscription(topic))
    messages = [OutgoingMessage(b"now"), OutgoingMessage(b"later", delay=timedelta(seconds=1))]
    answers = bench.publisher().publish(topic.name, topic.options, messages)
    assert [type(answer) for answer in answers] == [Confirmed, Refused]


def test_a_subscription_names_its_topics() -> None:
    """A group's topics have its name and the topic's, so that rights can be given by prefix."""
    place = place_of(Subscription("c", "orders", "reports", {"topic_name": "shop.orders"}))
    assert (place.retries, place.dead) == (
        "oncemq.reports.shop.orders.retries",
        "oncemq.reports.shop.orders.dead-letters",
    )
