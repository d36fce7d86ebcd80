"""What was seen to go wrong with RocketMQ, each held against a real server."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from threading import Event, Thread
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest

from oncemq.common.problems import Severity
from oncemq.contracts.adapter import Adapter, Confirmed, DeadLetterRequest, RetryRequest, Subscription
from oncemq.errors import BrokerRefused
from oncemq.message import headers as names
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rocketmq_client.protocol.frames import FrameReader
from services import catalog
from services.servers.rocketmq import BROKER, NAME_SERVER, RocketMQBroker
from support.brokers.rocketmq import ProxiedRocketMQ, adapter_on
from support.brokers.rocketmq_bench import Bench
from support.brokers.rocketmq_queues import queue_console

GRACE = timedelta(seconds=5)
Open = Callable[..., tuple[Adapter, RecordingSink]]


@pytest.fixture
def space() -> str:
    """Return a namespace of this test's own."""
    return f"t{uuid4().hex[:10]}"


@pytest.fixture
def open_adapter(space: str) -> Iterator[Open]:
    """Open adapters that are closed when the test ends."""
    opened: list[Adapter] = []

    def start(url: str, *subscriptions: Subscription, **options: Any) -> tuple[Adapter, RecordingSink]:
        adapter, sink = adapter_on(url, namespace=space, **options), RecordingSink()
        opened.append(adapter)
        adapter.open(subscriptions, sink) if subscriptions else adapter.prepare(())
        return adapter, sink

    yield start
    for adapter in opened:
        adapter.close(grace=GRACE)


@pytest.fixture(scope="module")
def own_server() -> Iterator[RocketMQBroker]:
    """Start one server that the tests of this file may hurt."""
    servers = catalog.OwnServers(catalog.FOLDER)
    server = servers.make(RocketMQBroker)
    server.start()
    assert isinstance(server, RocketMQBroker)
    yield server
    servers.remove(server)


def subscription(topic: str = "orders", group: str = "points", **options: Any) -> Subscription:
    """Return a subscription; names are made unique by the namespace."""
    return Subscription(group, topic, group, {"queues": 4, **options})


def put(adapter: Adapter, *messages: OutgoingMessage, topic: str = "orders") -> None:
    """Publish and insist on every confirmation."""
    answers = adapter.publish(topic, {}, messages)
    assert all(isinstance(answer, Confirmed) for answer in answers), answers


def numbered(count: int, start: int = 0) -> list[OutgoingMessage]:
    """Return messages with bodies that can be told apart, of ten keys."""
    return [OutgoingMessage(b"%d" % number, key=f"k{number % 10}") for number in range(start, start + count)]


class Worker:
    """Acknowledges everything that comes, and knows what came."""

    def __init__(self, adapter: Adapter, sink: RecordingSink) -> None:
        self.adapter = adapter
        self.sink = sink
        self.done: list[bytes] = []
        self._over = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        taken = 0
        while not self._over.wait(0.002):
            fresh = self.sink.deliveries()[taken:]
            taken += len(fresh)
            failed = {id(failure.delivery) for failure in self.adapter.acknowledge(fresh)} if fresh else set()
            self.done += [delivery.message.body for delivery in fresh if id(delivery) not in failed]

    def stop(self) -> None:
        """End."""
        self._over.set()
        self._thread.join()


def eventually(reached: Callable[[], bool], timeout: float = 60) -> None:
    """Wait until `reached()`."""
    deadline, pause = monotonic() + timeout, Event()
    while not reached():
        assert monotonic() < deadline, f"waited {timeout} s"
        pause.wait(0.05)


def test_members_that_join_and_leave_lose_and_double_nothing(rocketmq_url: str, open_adapter: Open) -> None:
    """While messages flow, queues go from member to member: every message is settled exactly once."""
    publisher, _ = open_adapter(rocketmq_url, subscription(group="other"))
    workers = [Worker(*open_adapter(rocketmq_url, subscription()))]
    try:
        for step in range(6):
            put(publisher, *numbered(150, 150 * step))
            if step % 2 == 0:
                workers.append(Worker(*open_adapter(rocketmq_url, subscription())))
            else:
                gone = workers[-1]
                eventually(lambda gone=gone: len(gone.done) == len(gone.sink.deliveries()))  # type: ignore[misc]
                gone.adapter.close(grace=GRACE)
        eventually(lambda: len({body for worker in workers for body in worker.done}) == 900)
    finally:
        for worker in workers:
            worker.stop()
    assert sorted(int(body) for worker in workers for body in worker.done) == list(range(900))


def test_a_members_share_is_told_to_the_others(rocketmq_url: str, open_adapter: Open) -> None:
    """Two members get different queues, and both of them work."""
    first = open_adapter(rocketmq_url, subscription())
    second = open_adapter(rocketmq_url, subscription())
    publisher, _ = open_adapter(rocketmq_url)
    put(publisher, *[OutgoingMessage(b"%d" % number) for number in range(80)])
    eventually(lambda: len(first[1].deliveries()) + len(second[1].deliveries()) == 80)
    assert len(first[1].deliveries()) == len(second[1].deliveries()) == 40


def test_tags_with_the_same_hash_are_told_apart(rocketmq_url: str, open_adapter: Open) -> None:
    """The broker compares hash codes, which "Aa" and "BB" share; what was not asked for holds up no commit."""
    wanted = subscription(tags=["Aa"])
    adapter, sink = open_adapter(rocketmq_url, wanted)
    put(adapter, *[OutgoingMessage(tag.encode(), {"tags": tag}, key="k") for tag in ("BB", "Aa", "xx", "BB")])
    assert sink.wait_for(1)[0].message.body == b"Aa"
    assert not adapter.acknowledge(sink.deliveries())
    assert sink.stays_at(1, 0.5)
    adapter.close(grace=GRACE)
    assert open_adapter(rocketmq_url)[0].depth(wanted) == 0


def test_a_group_may_begin_at_the_end(rocketmq_url: str, open_adapter: Open) -> None:
    """`start: last` counts from the moment when the group was prepared, also if nothing was received then."""
    publisher, _ = open_adapter(rocketmq_url, subscription(group="other"))
    put(publisher, OutgoingMessage(b"old"))
    late = subscription(start="last")
    publisher.prepare([late])
    put(publisher, OutgoingMessage(b"new"))
    _, sink = open_adapter(rocketmq_url, late)
    assert [delivery.message.body for delivery in sink.wait_for(1)] == [b"new"]
    assert sink.stays_at(1, 0.5)


def test_queues_added_while_a_group_runs_are_read_from_their_beginning(
    rocketmq_url: str, space: str, open_adapter: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`start: last` skips nothing of queues that did not exist when the group began, however late it sees them."""
    monkeypatch.setattr("oncemq_adapters.rocketmq.remoting.operations.REFRESH_EVERY", 0.5)
    monkeypatch.setattr("oncemq_adapters.rocketmq.remoting.consumer.group_member.REBALANCE_EVERY", 0.5)
    publisher, _ = open_adapter(rocketmq_url, subscription(group="other"))
    put(publisher, OutgoingMessage(b"old"))
    adapter, sink = open_adapter(rocketmq_url, subscription(start="last"))
    with queue_console(rocketmq_url) as console:
        console.set_queues(f"{space}%orders", 12)
        console.fill(f"{space}%orders", range(4, 12), b"new")
    assert [delivery.message.body for delivery in sink.wait_for(8, 20)] == [b"new"] * 8
    assert not adapter.acknowledge(sink.deliveries())


def test_queues_added_while_a_group_is_away_are_read_from_their_beginning(
    rocketmq_url: str, space: str, open_adapter: Open
) -> None:
    """The next start of a group with `start: last` begins where a queue begins that is new to it."""
    publisher, _ = open_adapter(rocketmq_url, subscription(group="other"))
    put(publisher, OutgoingMessage(b"old"))
    late = subscription(start="last")
    open_adapter(rocketmq_url, late)[0].close(grace=GRACE)
    with queue_console(rocketmq_url) as console:
        console.set_queues(f"{space}%orders", 6)
        console.fill(f"{space}%orders", (4, 5), b"new")
    _, sink = open_adapter(rocketmq_url, late)
    assert [delivery.message.body for delivery in sink.wait_for(2)] == [b"new"] * 2


def test_members_that_begin_a_group_together_all_begin_at_the_end(
    rocketmq_url: str, open_adapter: Open
) -> None:
    """What one of them has committed first does not make the others' queues look added later."""
    publisher, _ = open_adapter(rocketmq_url, subscription(group="other"))
    put(publisher, *numbered(40))
    late = subscription(start="last")
    opened: list[RecordingSink] = []
    threads = [Thread(target=lambda: opened.append(open_adapter(rocketmq_url, late)[1])) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    put(publisher, OutgoingMessage(b"new"))
    eventually(lambda: any(sink.deliveries() for sink in opened))
    assert [delivery.message.body for sink in opened for delivery in sink.deliveries()] == [b"new"]


def test_a_topic_that_does_not_exist_is_named(rocketmq_url: str, open_adapter: Open) -> None:
    """With `create: false` the error says how to make it."""
    with pytest.raises(BrokerRefused, match="mqadmin updateTopic"):
        open_adapter(rocketmq_url, subscription(create=False))


def test_fifo_holds_a_queue_behind_a_retry(rocketmq_url: str, open_adapter: Open) -> None:
    """Where order is strict, nothing of the queue comes before the message that is tried again."""
    adapter, sink = open_adapter(rocketmq_url, subscription(fifo=True))
    put(adapter, *[OutgoingMessage(b"%d" % number, key="one") for number in range(3)])
    (first,) = sink.wait_for(1)
    assert not adapter.retry([RetryRequest(first, timedelta(seconds=0.5), {names.ATTEMPT: "2"})])
    again = sink.wait_for(2)[1]
    assert (again.message.body, again.message.attempt) == (b"0", 2), sink.losses()
    for count in (3, 4):
        assert not adapter.acknowledge(sink.deliveries()[-1:])
        sink.wait_for(count)
    assert not adapter.dead_letter([DeadLetterRequest(sink.deliveries()[-1], {names.REASON: "rejected"})])
    assert sink.bodies() == [b"0", b"0", b"1", b"2"]
    letters = list(adapter.dead_letters(subscription(fifo=True), 10))
    assert [letter.message.body for letter in letters] == [b"2"]


def test_two_topics_of_one_group_share_its_retries(rocketmq_url: str, open_adapter: Open) -> None:
    """All retries of a group come by one topic; each goes to the consumer that it was for."""
    first, second = (Subscription(name, name, "both", {"queues": 1}) for name in ("one", "two"))
    adapter, sink = open_adapter(rocketmq_url, first, second)
    for topic in ("one", "two"):
        put(adapter, OutgoingMessage(topic.encode()), topic=topic)
    later = [RetryRequest(delivery, timedelta(0), {}) for delivery in sink.wait_for(2)]
    assert not adapter.retry(later)
    sink.wait_for(4)
    assert sink.bodies("one") == [b"one"] * 2
    assert sink.bodies("two") == [b"two"] * 2


def test_tls_is_spoken(rocketmq_url: str, open_adapter: Open) -> None:
    """The whole way works over TLS; a certificate that no one vouches for is refused unless that is asked for."""
    with pytest.raises(Exception, match="certificate"):
        open_adapter(rocketmq_url, subscription(), tls=True)
    adapter, sink = open_adapter(rocketmq_url, subscription(), tls=True, verify=False)
    put(adapter, *numbered(300))
    assert not adapter.acknowledge(sink.wait_for(300))


def test_noise_from_the_broker_ends_the_connection_and_nothing_else(
    rocketmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that brings nonsense is made again; messages come as before."""
    harness = ProxiedRocketMQ(rocketmq_url)
    adapter, sink = harness.make_adapter(), RecordingSink()
    adapter.open([subscription()], sink)
    real, broken = FrameReader.feed, [True]

    def feed(self: FrameReader, data: bytes) -> Any:
        if broken:
            broken.clear()
            data = b"\xff" * 64
        return real(self, data)

    monkeypatch.setattr(FrameReader, "feed", feed)
    eventually(lambda: isinstance(adapter.publish("orders", {}, numbered(1))[0], Confirmed))
    sink.wait_for(1)
    adapter.close(grace=GRACE)
    harness.close()


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.timeout(240)
def test_deaths_of_broker_and_name_server_lose_nothing(
    own_server: RocketMQBroker, open_adapter: Open
) -> None:
    """SIGKILL of the name server disturbs no one who is connected; after that of the broker all goes on by itself."""
    adapter, sink = open_adapter(own_server.url, subscription())
    worker = Worker(adapter, sink)
    try:
        put(adapter, *numbered(200))
        own_server.kill_only(NAME_SERVER)
        put(adapter, *numbered(200, 200))
        eventually(lambda: len(set(worker.done)) == 400)
        own_server.start()
        own_server.kill_only(BROKER)
        eventually(lambda: not adapter.health()[0].subscribed)
        assert adapter.health()[0].detail
        own_server.start()
        eventually(lambda: adapter.health()[0].subscribed)
        eventually(
            lambda: all(
                isinstance(answer, Confirmed) for answer in adapter.publish("orders", {}, numbered(200, 400))
            )
        )
        eventually(lambda: len(set(worker.done)) == 600)
    finally:
        worker.stop()


@pytest.fixture
def settings(own_server: RocketMQBroker) -> Iterator[Bench]:
    """A broker whose configuration may be changed."""
    bench = Bench(own_server.url)
    bench.make_topic()
    yield bench
    bench.set_back()
    bench.close()


@pytest.mark.server
def test_a_group_that_is_never_created_is_refused(settings: Bench) -> None:
    """Found by `check --connect`, refused at the start wherever it shall begin; create: true makes it."""
    settings.configure(autoCreateSubscriptionGroup="false")
    (problem,) = settings.examine()
    for start in ("first", "last", "2026-01-01T00:00:00Z"):
        with pytest.raises(
            BrokerRefused, match=r"does not exist on .*mqadmin updateSubGroup -c <cluster> -g"
        ):
            settings.start(start=start)
    assert "does not exist on broker-a" in problem.text
    assert settings.examine({"create": True}) == []
    settings.start(start="last", create=True)
    assert settings.examine() == []


@pytest.mark.server
def test_a_broker_without_timer_wheel_is_found(settings: Bench) -> None:
    """Pauses become coarse, which is said; what its delay levels cannot do at all is refused."""
    settings.configure(timerWheelEnable="false")
    (problem,) = settings.examine()
    assert ("no timer wheel on broker-a" in problem.text, problem.severity) == (True, Severity.WARNING)
    (problem,) = settings.examine(longest_pause=timedelta(hours=3))
    assert ("one can be 3h long" in problem.text, problem.severity) == (True, Severity.ERROR)
    assert settings.examine(attempts=1) == []


@pytest.mark.server
def test_messages_that_do_not_outlive_their_retries_are_found(settings: Bench) -> None:
    """Kept for less than the retries take, or held back for less than a pause: both name the broker."""
    settings.configure(fileReservedTime="2", timerMaxDelaySec="3600")
    kept, held = settings.examine(retry_horizon=timedelta(hours=3), longest_pause=timedelta(hours=2))
    assert "retries can take 3h, but broker-a deletes messages after 2h" in kept.text
    assert "a pause can be 2h long, but broker-a holds messages back for 1h at most" in held.text
    assert (kept.severity, held.severity) == (Severity.ERROR, Severity.ERROR)
    assert settings.examine() == []
