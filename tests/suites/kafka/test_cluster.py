"""Three Kafka nodes of which one dies: the group's coordinator, a partition's leader, or a replica that must be in sync."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition

from oncemq.contracts.adapter import Refused, Subscription
from oncemq.errors import BrokerError, BrokerUnavailable
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.adapter_suite.bench import Bench, Member, bodies, later, numbered
from oncemq_adapters.kafka.address import parse_address
from oncemq_adapters.kafka.administration import Administration
from oncemq_adapters.kafka.names import Place, place_of
from services.servers.kafka import KafkaTrio
from storm.oracle.kafka_reader import OFFSETS, Reader
from support.brokers.kafka import QUICK, SharedKafka, adapter_on, brokers_of
from support.patience import PATIENCE
from support.servers import own_server

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(240)]
OUTLIVING = {"publish_timeout": "60s"}
"""A producer that waits for the next leader."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaTrio]:
    """Nodes that the tests of this file may hurt."""
    with own_server(KafkaTrio) as server:
        yield server
        # Nodes that end in order wait for each other.
        server.kill()


@pytest.fixture
def operator(cluster: KafkaTrio) -> Administration:
    """Return a client that looks at the cluster from outside; all of its nodes live."""
    cluster.start()
    address = parse_address(cluster.url, QUICK)
    brokers_of(address, 3)
    return Administration(address, "operator")


@pytest.fixture
def bench(cluster: KafkaTrio, operator: Administration) -> Iterator[Bench]:
    """Yield a bench on the cluster."""
    harness = SharedKafka(cluster.url, **OUTLIVING)
    harness.patience *= PATIENCE
    bench = Bench(harness)
    yield bench
    bench.close_all()


def real(bench: Bench, subscription: Subscription) -> Place:
    """Return the names on the cluster."""
    return place_of(subscription, bench.harness.options["namespace"])


def leader_of(operator: Administration, topic: str) -> int:
    """Return the node that leads the first partition."""
    return int(operator.description(topic).partitions[0].leader.id)


def coordinator_of(cluster: KafkaTrio, group: str) -> int:
    """Return the node that coordinates the group."""
    reader = Reader(cluster.url)
    return reader.leader(OFFSETS, reader.partition_of(group))


def in_sync(operator: Administration, topic: str) -> int:
    """Return how many nodes have all of the first partition; 0 while no node can say so."""
    try:
        return len(operator.description(topic).partitions[0].isr)
    except BrokerUnavailable:
        return 0


def keyed(messages: list[bytes]) -> list[OutgoingMessage]:
    """Return messages of ten keys."""
    return [OutgoingMessage(body, key=str(number % 10)) for number, body in enumerate(messages)]


def settle_all(bench: Bench, member: Member, wanted: list[bytes]) -> None:
    """Settle what comes until each of these has been settled; some may come again."""
    done: set[bytes] = set()
    seen = 0

    def settled() -> bool:
        nonlocal seen
        fresh = member.sink.deliveries()[seen:]
        seen += len(fresh)
        failed = {id(failure.delivery) for failure in member.adapter.acknowledge(fresh)}
        done.update(delivery.message.body for delivery in fresh if id(delivery) not in failed)
        return done >= set(wanted)

    bench.eventually(settled, "every message to be settled")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_whose_coordinator_dies_goes_on(
    cluster: KafkaTrio, bench: Bench, operator: Administration, protocol: str
) -> None:
    """The next coordinator knows what was committed; the member settles what follows, and is healthy."""
    options: dict[str, Any] = {**bench.harness.options, "protocol": protocol}
    if protocol == "consumer":
        del options["session_timeout"]
    topic = bench.topic()
    subscription = bench.subscription(topic)
    place = real(bench, subscription)
    member = bench.open(subscription, adapter=adapter_on(cluster.url, **options))

    def committed() -> bool:
        with suppress(BrokerError):
            found = operator.committed(place.group, place.topic.name)
            return {number: at.offset for number, at in found.items()} == operator.ends(place.topic.name)
        return False

    sent = numbered(60)
    bench.publish(topic, *keyed(sent[:30]))
    settle_all(bench, member, sent[:30])
    bench.eventually(committed, "the offsets of the first")
    cluster.kill_only(cluster.node(coordinator_of(cluster, place.group)))
    bench.publish(topic, *keyed(sent[30:]))
    settle_all(bench, member, sent[30:])
    bench.eventually(committed, "the offsets at the next coordinator")
    bench.eventually(lambda: bench.subscribed(member), "health")


def test_a_partition_whose_leader_dies_loses_nothing(
    cluster: KafkaTrio, bench: Bench, operator: Administration
) -> None:
    """What was confirmed is at the next leader, what follows is confirmed there, and the order of a key is kept."""
    topic = bench.topic()
    subscription = bench.subscription(topic)
    sent = numbered(40)
    bench.prepare(subscription)
    bench.publish(topic, *(OutgoingMessage(body, key="one") for body in sent[:20]))
    cluster.kill_only(cluster.node(leader_of(operator, real(bench, subscription).topic.name)))
    bench.publish(topic, *(OutgoingMessage(body, key="one") for body in sent[20:]))
    assert bodies(bench.receive(bench.open(subscription), 40)) == sent


def test_what_too_few_replicas_have_is_not_confirmed(
    cluster: KafkaTrio, bench: Bench, operator: Administration
) -> None:
    """With a replica short of min.insync.replicas a publication is refused for now, and a message waits for its retry's copy."""
    topic = bench.topic()
    subscription = bench.subscription(topic)
    place = real(bench, subscription)
    for name, partitions in ((place.topic.name, 1), (place.retries, 8)):
        operator.create(name, partitions, {"min.insync.replicas": "3"})
    member = bench.open(subscription, adapter=bench.harness.make_adapter(publish_timeout="2s"))
    bench.publish(topic, b"first")
    (held,) = bench.receive(member, 1)
    keep = {leader_of(operator, place.topic.name), coordinator_of(cluster, place.group)}
    cluster.kill_only(cluster.node(min({1, 2, 3} - keep)))
    bench.eventually(
        lambda: in_sync(operator, place.topic.name) == in_sync(operator, place.retries) == 2,
        "the smaller set",
    )
    (answer,) = member.adapter.publish(topic.name, topic.options, [OutgoingMessage(b"second")])
    assert isinstance(answer, Refused)
    assert isinstance(answer.error, BrokerUnavailable)
    (failed,) = member.adapter.retry([later(held, 0)])
    assert "not confirm" in str(failed.error) or "timed out" in str(failed.error), failed.error
    cluster.start()
    bench.eventually(lambda: not member.adapter.retry([later(held, 0)]), "the copy to be confirmed")
    assert bodies(bench.receive(member, 2)) == [b"first", b"first"]


def test_a_coordinator_that_dies_while_it_is_asked_ends_no_process(
    cluster: KafkaTrio, bench: Bench, operator: Administration
) -> None:
    """A worker asks for its lag all the time: the answers fail for a moment, and come again."""
    topic = bench.topic()
    subscription = bench.subscription(topic)
    place = real(bench, subscription)
    adapter = bench.prepare(subscription)
    bench.publish(topic, *keyed(numbered(10)))
    operator.set_offsets(place.group, [TopicPartition(place.topic.name, 0, 0)])
    dead, counted = Event(), Event()

    def asking() -> None:
        while not counted.is_set():
            with suppress(BrokerError):
                if adapter.depth(subscription) == 10 and dead.is_set():
                    counted.set()

    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(asking) for _ in range(4)]
        try:
            cluster.kill_only(cluster.node(coordinator_of(cluster, place.group)))
            dead.set()
            assert counted.wait(bench.harness.patience)
        finally:
            counted.set()
        assert [answer.result() for answer in answers] == [None] * 4


def test_a_start_goes_on_with_a_topic_that_it_has_just_made(cluster: KafkaTrio, bench: Bench) -> None:
    """Nodes hear of a new topic one after the other; the start waits for them."""
    adapter = bench.adopt(adapter_on(cluster.url, **QUICK))
    for _ in range(8):
        name = f"t{uuid4().hex[:8]}"
        adapter.prepare([Subscription("points", name, f"g{name}", {"start": "last"})])
    adapter.close(grace=timedelta(seconds=1))
