"""Java's broadcasting members and ours in one group: each gets every message, and neither notices the other."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from threading import Event
from time import monotonic
from uuid import uuid4

import pytest

from oncemq import App
from oncemq.contracts.adapter import Subscription
from oncemq.contracts.broadcast import Broadcast
from oncemq_adapters.rocketmq.remoting.group_subscriptions import look_at
from support.brokers.java_peer import JavaPeer, compiled
from support.brokers.rocketmq import adapter_on

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
COUNT = 60


class Instance:
    """One instance of ours, that notes what it applied."""

    def __init__(self, url: str, folder: Path, name: str, topic: str, group: str) -> None:
        self.ran: list[str] = []
        database, state = f"sqlite:///{folder}/shop.db", str(folder / name)
        self.app = App("shop", brokers={"main": url}, database=database, instance=name, state=state)
        self.app.topic(
            topic,
            key="keys[0]",
            identity="key",
            format="text",
            strategies=["unique_key"],
            queues=4,
            create=True,
        )

        @self.app.consumer(topic=topic, name="refresh", group=group, mode="broadcast")
        def refresh(body: str) -> None:
            self.ran.append(body)

        self.app.create_tables()
        self.app.start()


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The peer, compiled."""
    with compiled(tmp_path_factory.mktemp("peer")) as folder:
        yield folder


@pytest.fixture
def peers(rocketmq_url: str, classes: Path) -> Iterator[list[JavaPeer]]:
    """Two Java processes."""
    with ExitStack() as stack:
        yield [stack.enter_context(JavaPeer(rocketmq_url, classes)) for _ in range(2)]


def until(instance: Instance, count: int) -> None:
    """Wait until it has applied so many."""
    deadline, pause = monotonic() + 40, Event()
    while len(instance.ran) < count:
        assert monotonic() < deadline, f"{len(instance.ran)} of {count}"
        pause.wait(0.05)


def test_each_member_of_both_gets_every_message(
    rocketmq_url: str, peers: list[JavaPeer], tmp_path: Path
) -> None:
    """While ours leave and come back, too: what came meanwhile is read then, and Java's members get each message once."""
    topic, group = f"t{uuid4().hex[:8]}", f"g{uuid4().hex[:8]}"
    first, second = (Instance(rocketmq_url, tmp_path, name, topic, group) for name in "ab")
    for peer in peers:
        peer.order("consume", group, topic, "broadcast")
    peers[0].order("produce", topic, COUNT, "one-", "-")
    for each in (first, second):
        until(each, COUNT)
    second.app.stop()
    peers[0].order("produce", topic, COUNT, "two-", "-")
    until(first, 2 * COUNT)
    again = Instance(rocketmq_url, tmp_path, "b", topic, group)
    until(again, COUNT)
    expected = sorted(f"{part}-{number}" for part in ("one", "two") for number in range(COUNT))
    try:
        assert sorted(first.ran) == sorted(second.ran + again.ran) == expected
        for peer in peers:
            assert sorted(message.body.decode() for message in peer.wait_for(2 * COUNT)) == expected
    finally:
        first.app.stop()
        again.app.stop()


@pytest.mark.parametrize(("how", "complaints"), [("broadcast", 0), ("Averagely", 1)])
def test_a_java_member_that_shares_is_named(
    rocketmq_url: str, peers: list[JavaPeer], how: str, complaints: int
) -> None:
    """One that broadcasts is as ours; of one that does not, `check --connect` says so: a broker knows one way for a group."""
    group = f"g{uuid4().hex[:8]}"
    adapter = adapter_on(rocketmq_url)
    subscription = Subscription(
        "c", f"t{uuid4().hex[:8]}", group, {"create": True}, broadcast=Broadcast("a", Nowhere())
    )
    try:
        adapter.prepare([subscription])
        peers[0].order("consume", group, subscription.topic, how)
        # On busy cores a Java process that has just started answers late, and one that does not answer is passed over.
        deadline, found = monotonic() + 40, list[str]()
        while not any(member.model for member in look_at(adapter._opened_desk(), group).members):
            assert monotonic() < deadline, "no member says what it does"
        found = list(adapter.concerns([subscription]))
        while len(found) < complaints:
            assert monotonic() < deadline, found
            found = list(adapter.concerns([subscription]))
    finally:
        adapter.close(grace=timedelta(seconds=5))
    assert len(found) == complaints, found
    assert all("shares its messages with others" in line for line in found), found


class Nowhere:
    """Positions of an instance that does not consume."""

    def hold(self) -> str:
        """Say that we are the process."""
        return ""

    def leave(self) -> None:
        """Do nothing."""

    def read(self, topic: str) -> dict[str, int]:
        """Return nothing."""
        del topic
        return {}

    def write(self, positions: object) -> bool:
        """Forget them."""
        del positions
        return True
