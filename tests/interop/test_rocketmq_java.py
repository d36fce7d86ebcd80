"""A service in Java on the same topics and in the same groups notices nothing unusual: the official client is the judge."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from random import Random
from threading import Event
from time import monotonic
from uuid import uuid4

import pytest

from oncemq import App
from oncemq.config import load
from oncemq.contracts.adapter import Adapter, Confirmed, DeadLetterRequest, RetryRequest, Subscription
from oncemq.message import headers as names
from oncemq.message.envelope import Delivery, OutgoingMessage
from oncemq.operate.dead_letters import Filter, found_letters, row_of
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rocketmq import RocketMQMetadata
from oncemq_adapters.rocketmq.remoting.group_subscriptions import look_at
from oncemq_adapters.rocketmq_client.connections import allocate
from oncemq_adapters.rocketmq_client.names import ALLOCATIONS, BY_CIRCLE
from support.brokers.java_peer import JavaPeer, compiled, mqadmin
from support.brokers.rocketmq import adapter_on
from support.brokers.rocketmq_bench import account_url

GRACE = timedelta(seconds=5)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The peer, compiled."""
    with compiled(tmp_path_factory.mktemp("peer")) as folder:
        yield folder


@pytest.fixture(scope="module")
def producer(rocketmq_url: str, classes: Path) -> Iterator[JavaPeer]:
    """A Java process that all tests use to publish."""
    with JavaPeer(rocketmq_url, classes) as peer:
        yield peer


@pytest.fixture
def java(rocketmq_url: str, classes: Path) -> Iterator[JavaPeer]:
    """A Java process of the test's own."""
    with JavaPeer(rocketmq_url, classes) as peer:
        yield peer


class Ours:
    """A Python member with a topic and a group of the test's own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.subscription = Subscription("c", f"t{uuid4().hex[:8]}", f"g{uuid4().hex[:8]}", {"queues": 4})
        self.adapters: list[Adapter] = []
        self.publisher = self._add(adapter_on(url))
        self.publisher.prepare([self.subscription])
        self.topic, self.group = self.subscription.topic, self.subscription.group

    def join(self) -> tuple[Adapter, RecordingSink]:
        """Return a new member."""
        adapter, sink = self._add(adapter_on(self.url)), RecordingSink()
        adapter.open([self.subscription], sink)
        return adapter, sink

    def publish(self, *messages: OutgoingMessage) -> None:
        """Publish and insist on every confirmation."""
        answers = self.publisher.publish(self.topic, {}, messages)
        assert all(isinstance(answer, Confirmed) for answer in answers), answers

    def _add(self, adapter: Adapter) -> Adapter:
        self.adapters.append(adapter)
        return adapter


@pytest.fixture
def ours(rocketmq_url: str) -> Iterator[Ours]:
    """Python's side, closed when the test ends."""
    ours = Ours(rocketmq_url)
    yield ours
    for adapter in ours.adapters:
        adapter.close(grace=GRACE)


def eventually(reached: Callable[[], bool], timeout: float = 60) -> None:
    """Wait until `reached()`."""
    deadline, pause = monotonic() + timeout, Event()
    while not reached():
        assert monotonic() < deadline, f"waited {timeout} s"
        pause.wait(0.05)


@pytest.mark.parametrize("packing", ["-", "ZLIB", "LZ4", "ZSTD"])
def test_python_reads_what_java_sends(ours: Ours, producer: JavaPeer, packing: str) -> None:
    """Keys, tag, properties, body: packed in any way that Java knows."""
    _, sink = ours.join()
    producer.order("produce", ours.topic, 5, "a-longer-body-", packing)
    received = {delivery.message.body.decode(): delivery.message for delivery in sink.wait_for(5)}
    assert sorted(received) == [f"a-longer-body-{number}" for number in range(5)]
    for body, message in received.items():
        assert message.keys == (body,)
        assert (message.headers["tags"], message.headers["tenant"]) == ("fromJava", "größe 🚕")
        assert message.attempt == 1


def test_python_reads_javas_batches_and_delays(ours: Ours, producer: JavaPeer) -> None:
    """A batch arrives whole; what shall come later comes later."""
    _, sink = ours.join()
    began = monotonic()
    producer.order("delay", ours.topic, "late", 2000)
    producer.order("batch", ours.topic, 20, "b")
    eventually(lambda: b"late" in sink.bodies())
    assert monotonic() - began > 1.9
    assert sorted(delivery.message.body for delivery in sink.wait_for(21)) == sorted(
        [b"late", *(b"b%d" % n for n in range(20))]
    )


def test_java_reads_what_python_sends(ours: Ours, java: JavaPeer) -> None:
    """Single messages, batches, packed and delayed ones: keys, tag, properties and body are as Java would write them."""
    java.order("consume", ours.group, ours.topic)
    ours.publish(OutgoingMessage(b"x" * 9000, {"tenant": "größe", "tags": "paid"}, key="k1"))
    ours.publish(*[OutgoingMessage(b"%d" % n, key=f"k{n}") for n in range(20)])
    ours.publish(OutgoingMessage(b"late", delay=timedelta(seconds=1)))
    received = {message.body: message for message in java.wait_for(22)}
    big = received[b"x" * 9000]
    assert (big.properties["KEYS"], big.properties["TAGS"], big.properties["tenant"]) == (
        "k1",
        "paid",
        "größe",
    )
    assert {received[b"%d" % n].properties["KEYS"] for n in range(20)} == {f"k{n}" for n in range(20)}
    assert b"late" in received
    assert {message.attempts for message in received.values()} == {0}


def test_a_handler_can_ask_where_its_message_lay(ours: Ours, java: JavaPeer) -> None:
    """Queue, offset, times and hosts of a delivery are those that Java's client tells of it."""
    _, sink = ours.join()
    java.order("consume", f"{ours.group}j", ours.topic)
    ours.publish(*[OutgoingMessage(b"%d" % number, key=f"k{number}") for number in range(8)])
    told = {message.body: message.properties for message in java.wait_for(8)}
    for delivery in sink.wait_for(8):
        found = RocketMQMetadata.read(delivery.message.metadata_source)
        assert found is not None
        assert found.born_at is not None
        assert found.stored_at is not None
        properties = told[delivery.message.body]
        born_host = found.born_host.rpartition(":")[0]
        assert {
            "java.queue": str(found.queue_id),
            "java.offset": str(found.queue_offset),
            "java.born": f"{round(found.born_at.timestamp() * 1000)} {born_host}",
            "java.stored": f"{round(found.stored_at.timestamp() * 1000)} /{found.store_host}",
        } == {name: text for name, text in properties.items() if name.startswith("java.")}
        assert found.reconsume_times == 0


def test_java_reads_our_retries(ours: Ours, java: JavaPeer) -> None:
    """A message that Python gives back to the group reaches a Java member, with Java's own count of attempts."""
    adapter, sink = ours.join()
    ours.publish(OutgoingMessage(b"x", {"tenant": "a"}, key="k"))
    (delivery,) = sink.wait_for(1)
    assert not adapter.retry([RetryRequest(delivery, timedelta(seconds=1), {names.ATTEMPT: "3"})])
    adapter.close(grace=GRACE)
    java.order("consume", ours.group, ours.topic)
    (received,) = java.wait_for(1)
    assert (received.body, received.attempts, received.properties["tenant"]) == (b"x", 2, "a")
    assert received.properties["oncemq-attempt"] == "3"


def test_java_reads_our_dead_letters(ours: Ours, java: JavaPeer) -> None:
    """They lie in the group's own topic, with the reason, where Java's tools look for them."""
    adapter, sink = ours.join()
    ours.publish(OutgoingMessage(b"x", key="k"))
    assert not adapter.dead_letter([DeadLetterRequest(sink.wait_for(1)[0], {names.REASON: "rejected"})])
    java.order("consume", f"{ours.group}-dead", f"%DLQ%{ours.group}")
    (received,) = java.wait_for(1)
    assert (received.body, received.properties[names.REASON]) == (b"x", "rejected")
    assert received.properties["DLQ_ORIGIN_TOPIC"] == ours.topic


def tried_before(delivery: Delivery) -> bool:
    """Whether a Java member has given the message back.

    Java confirms what it has done some time later, and by a request without an answer: after it has left, the first
    delivery of the same message, or a try that was on its way, may come as well.
    """
    return delivery.message.attempt > 1


def test_python_reads_javas_retries(ours: Ours, java: JavaPeer) -> None:
    """What a Java member could not do comes to Python with its attempts, under the topic that it came by."""
    java.order("consume", ours.group, ours.topic, "later")
    ours.publish(OutgoingMessage(b"x", key="k"))
    java.wait_for(2)
    java.order("leave")
    _, sink = ours.join()
    eventually(lambda: any(map(tried_before, sink.deliveries())))
    for delivery in sink.deliveries():
        message = delivery.message
        assert (message.topic, message.body, message.keys) == (ours.topic, b"x", ("k",))
        assert message.attempt in {1, 2, 3}


def test_a_message_keeps_its_id_when_java_gives_it_back(ours: Ours, java: JavaPeer) -> None:
    """A retry by a Java member has the id of the first try, so that `identity: message_id` finds its record."""
    java.order("consume", ours.group, ours.topic, "later")
    ours.publish(OutgoingMessage(b"x", key="k"))
    first = java.wait_for(2)[0]
    java.order("leave")
    _, sink = ours.join()
    # What the leaving member has given back may come beside what the broker took from it.
    assert {delivery.message.message_id for delivery in sink.wait_for(1)} == {first.properties["UNIQ_KEY"]}


def test_an_account_that_suffices_for_java_suffices_for_python(ours: Ours, classes: Path) -> None:
    """With the same few rights a Java member consumes and gives back, and a Python one takes that over and retries it."""
    rights = {f"Topic:{ours.topic}": "Sub", f"Group:{ours.group}": "Sub"}
    url = account_url(ours.url, **rights)
    with JavaPeer(url, classes) as java:
        java.order("consume", ours.group, ours.topic, "later")
        ours.publish(OutgoingMessage(b"x", key="k"))
        java.wait_for(2)
        java.order("leave")
    ours.url = url
    adapter, sink = ours.join()
    eventually(lambda: any(map(tried_before, sink.deliveries())))
    delivery = next(filter(tried_before, sink.deliveries()))
    assert not adapter.retry([RetryRequest(delivery, timedelta(0), {names.ATTEMPT: "9"})])
    eventually(lambda: any(each.message.attempt == 9 for each in sink.deliveries()))


APP = """\
app: shop
brokers: {{main: {{url: "{url}"}}}}
database: {{url: "sqlite:///{file}"}}
topics:
  {topic}: {{key: "keys[0]", strategies: [unique_key]}}
consumers:
  count: {{topic: {topic}, group: {group}, handler: "handlers:handle"}}
"""


def test_dead_letters_of_java_members_have_key_attempts_and_id(
    ours: Ours, java: JavaPeer, tmp_path: Path
) -> None:
    """The key by the topic's expression, as many attempts as Java made, and the id of the producer's client."""
    java.order("consume", ours.group, ours.topic, "once")
    ours.publish(OutgoingMessage(b'{"id": 1}', key="order-7"))
    first = java.wait_for(2)[0]
    file = tmp_path / "app.yaml"
    file.write_text(APP.format(url=ours.url, file=tmp_path / "ledger", topic=ours.topic, group=ours.group))
    (tmp_path / "handlers.py").write_text("def handle(order: dict) -> None: ...\n")
    plan = load([file]).plan
    rows: list[dict[str, object]] = []

    def dead() -> bool:
        chosen = Filter(key="order-7")
        rows[:] = [row_of(*found) for found in found_letters(plan, plan.consumers, chosen, 10)]
        return bool(rows)

    eventually(dead)
    assert [(row["key"], row["attempts"], row["message_id"]) for row in rows] == [
        ("order-7", 2, first.properties["UNIQ_KEY"])
    ]


@pytest.mark.parametrize("rule", ALLOCATIONS)
def test_queues_are_divided_as_by_javas_classes(java: JavaPeer, rule: str) -> None:
    """Random members and queues on several brokers: every member has the same queues by both."""
    draw = Random(rule)
    for _ in range(20):
        members = sorted(
            f"10.0.0.{draw.randrange(250)}@{draw.randrange(9999)}" for _ in range(draw.randint(1, 9))
        )
        members = sorted(set(members))
        brokers = {f"broker-{name}": draw.randint(1, 12) for name in "abc"[: draw.randint(1, 3)]}
        queues = [(name, number) for name, count in brokers.items() for number in range(count)]
        before = len(java.received)
        said = ",".join(f"{name}:{count}" for name, count in brokers.items())
        java.order("allocate", rule, "orders", said, ",".join(members))
        for member, told in zip(members, java.received[before:], strict=True):
            ours = allocate(rule, "orders", member, queues, members)
            assert told.body.decode() == " ".join([member, *(f"{name}/{number}" for name, number in ours)])


def divided(ours: Ours) -> int:
    """Return how many queues the members say that they consume; 0 while two of them say the same queue."""
    view = look_at(ours.publisher._opened_desk(), ours.group)  # type: ignore[attr-defined]
    shares = [set(member.queues.get(ours.topic, ())) for member in view.members]
    return len(set.union(*shares)) if sum(map(len, shares)) == len(set.union(*shares)) else 0


def test_a_java_member_with_another_rule_is_named(ours: Ours, java: JavaPeer) -> None:
    """From what it tells the brokers of its queues; with that rule here, too, nothing is said and every message comes once."""
    rule = BY_CIRCLE
    java.order("consume", ours.group, ours.topic, rule)
    adapter, _ = ours.join()
    found: list[str] = []

    def named() -> bool:
        found[:] = ours.publisher.concerns([ours.subscription])  # type: ignore[attr-defined]
        return bool(found)

    eventually(named)
    assert f"by {rule}, this app by Averagely" in found[0]
    adapter.close(grace=GRACE)
    ours.subscription = Subscription("c", ours.topic, ours.group, {"queues": 4, "allocation": rule})
    adapter, sink = ours.join()
    eventually(lambda: divided(ours) == 4)
    assert not named()
    ours.publish(*[OutgoingMessage(b"%d" % number, key=f"{number}") for number in range(40)])
    eventually(lambda: len(sink.bodies()) + len(java.received) >= 40)
    assert sorted(sink.bodies() + [received.body for received in java.received]) == sorted(
        b"%d" % n for n in range(40)
    )


def test_java_and_python_share_a_group(ours: Ours, java: JavaPeer) -> None:
    """Queues go from Python to Java when it joins and back when it leaves; every message is had, by one of them."""
    adapter, sink = ours.join()
    taken = [0]

    def work() -> int:
        fresh = sink.deliveries()[taken[0] :]
        taken[0] += len(fresh)
        assert not adapter.acknowledge(fresh)
        return taken[0]

    ours.publish(*[OutgoingMessage(b"a%d" % n) for n in range(40)])
    eventually(lambda: work() == 40)
    # Java begins where the group has got to as far as the broker knows, and Python tells it twice a second.
    eventually(lambda: adapter.depth(ours.subscription) == 0)
    java.order("consume", ours.group, ours.topic)
    eventually(lambda: len(adapter._members[0].assignment.queues) <= 3)  # type: ignore[attr-defined]
    ours.publish(*[OutgoingMessage(b"b%d" % n) for n in range(40)])
    eventually(lambda: work() + len(java.received) >= 80)
    assert java.received, "Java got no queue"
    # Java tells the broker every five seconds, and does not wait for its answer when it leaves.
    eventually(lambda: adapter.depth(ours.subscription) == 0)
    java.order("leave")
    ours.publish(*[OutgoingMessage(b"c%d" % n) for n in range(40)])
    eventually(lambda: work() + len(java.received) >= 120)
    had = Counter(sink.bodies() + [message.body for message in java.received])
    assert len(had) == 120
    assert {body for body, times in had.items() if times > 1} == set()


def test_python_reads_what_java_stores_in_batches(ours: Ours, java: JavaPeer) -> None:
    """A topic of `queue.type=BatchCQ`: what Java's consumer is given arrives, in place, also after a restart amid a batch."""
    topic = f"b{uuid4().hex[:8]}"
    mqadmin(
        "updateTopic",
        "-t",
        topic,
        "-c",
        "DefaultCluster",
        "-r",
        "1",
        "-w",
        "1",
        "-a",
        "+queue.type=BatchCQ",
    )
    ours.subscription = Subscription("c", topic, ours.group, {})
    adapter, sink = ours.join()
    java.order("consume", f"{ours.group}j", topic)
    java.order("batch", topic, 6, "b")
    java.order("batch", topic, 4, "c")
    told = {message.body: message.properties for message in java.wait_for(10)}
    deliveries = sink.wait_for(10)
    for delivery in deliveries:
        found = RocketMQMetadata.read(delivery.message.metadata_source)
        properties = told[delivery.message.body]
        assert found is not None
        assert properties["java.offset"] == str(found.queue_offset)
        assert delivery.message.message_id == properties["UNIQ_KEY"]
    assert not adapter.acknowledge(
        [delivery for delivery in deliveries if delivery.message.body in (b"b0", b"b1")]
    )
    retried = next(delivery for delivery in deliveries if delivery.message.body == b"b2")
    assert not adapter.retry([RetryRequest(retried, timedelta(seconds=1), {names.ATTEMPT: "2"})])
    adapter.close(grace=GRACE)
    _, again = ours.join()
    assert sorted(delivery.message.body for delivery in again.wait_for(8)) == sorted(
        set(told) - {b"b0", b"b1"}
    )


def test_routes_subscribe_to_the_tags_of_a_java_member(ours: Ours, java: JavaPeer, rocketmq_url: str) -> None:
    """Five routes beside Java's five tags in one group: the broker sees one subscription, and each message comes to one of both."""
    tags = [f"order.{name}" for name in ("paid", "sent", "lost", "back", "done")]
    app = App("shop", brokers={"main": rocketmq_url}, database="sqlite://")
    app.topic("orders", topic_name=ours.topic, key="keys[0]", strategies=["unique_key"])
    routes = app.routes(
        topic="orders", name="c", group=ours.group, by="headers.tags", otherwise="unsubscribed"
    )
    for tag in tags:
        routes.route(tag)(lambda order: None)
    subscription = app.plan().consumers[0].subscription
    java.order("consume", ours.group, ours.topic, f"tags={'||'.join(tags)}")
    ours.subscription = subscription
    _, sink = ours.join()
    eventually(lambda: divided(ours) == 4)
    assert not ours.publisher.concerns([subscription])  # type: ignore[attr-defined]
    ours.publish(
        *[
            OutgoingMessage(f"{tag} {number}".encode(), {"tags": tag}, key=f"{number}")
            for tag in [*tags, "order.unknown"]
            for number in range(8)
        ]
    )
    eventually(lambda: len(sink.bodies()) + len(java.received) >= 40)
    assert sorted(sink.bodies() + [received.body for received in java.received]) == sorted(
        f"{tag} {number}".encode() for tag in tags for number in range(8)
    )
    assert sink.bodies()
    assert java.received
