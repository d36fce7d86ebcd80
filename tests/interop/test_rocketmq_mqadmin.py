"""RocketMQ's own administration tool finds our members, progress and dead letters where it looks, and can set us back."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event
from time import monotonic
from uuid import uuid4

import pytest
from sqlalchemy.orm import Session
from structlog.testing import capture_logs

from oncemq import App
from oncemq.contracts.adapter import Adapter, Confirmed, DeadLetterRequest, Subscription
from oncemq.ledger.records.forgetting import Choice
from oncemq.message import headers as names
from oncemq.message.envelope import OutgoingMessage
from oncemq.operate.auditing import Operator
from oncemq.operate.forgetting import Forgetting
from oncemq.testing.recording_sink import RecordingSink
from support.brokers.java_peer import mqadmin
from support.brokers.rocketmq import adapter_on

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class Member:
    """A member of a group with a topic of its own, and what it was given."""

    def __init__(self, url: str) -> None:
        self.topic, self.group = f"t{uuid4().hex[:8]}", f"g{uuid4().hex[:8]}"
        self.sink = RecordingSink()
        self.adapter: Adapter = adapter_on(url)
        wanted = Subscription("c", self.topic, self.group, {"queues": 1, "tags": ["paid", "sent"]})
        self.adapter.open([wanted], self.sink)

    def publish(self, *bodies: bytes) -> None:
        """Publish, each body its own key."""
        messages = [OutgoingMessage(body, {"tags": "paid"}, key=body.decode()) for body in bodies]
        answers = self.adapter.publish(self.topic, {}, messages)
        assert all(isinstance(answer, Confirmed) for answer in answers), answers


@pytest.fixture
def member(rocketmq_url: str) -> Iterator[Member]:
    """A member that runs."""
    member = Member(rocketmq_url)
    yield member
    member.adapter.close(grace=timedelta(seconds=5))


def eventually(reached: Callable[[], bool], timeout: float = 60) -> None:
    """Wait until `reached()`."""
    deadline, pause = monotonic() + timeout, Event()
    while not reached():
        assert monotonic() < deadline, f"waited {timeout} s"
        pause.wait(0.05)


def test_consumer_progress_and_connection_show_our_member(member: Member) -> None:
    """What is settled without a gap, what is left, who consumes, and with which subscription."""
    member.publish(*[b"k%d" % number for number in range(10)])
    deliveries = member.sink.wait_for(10)
    assert not member.adapter.acknowledge(deliveries[:6])
    subscription = Subscription("c", member.topic, member.group, {})
    eventually(lambda: member.adapter.depth(subscription) == 4)
    progress = mqadmin("consumerProgress", "-g", member.group)
    (row,) = [line.split() for line in progress.splitlines() if line.startswith(member.topic)]
    assert row[1:6] == ["broker-a", "0", "10", "6", "4"]
    assert re.search(r"Diff Total: 4\b", progress)
    connection = mqadmin("consumerConnection", "-g", member.group)
    assert re.search(r"@\d+@tests-[0-9a-f]{6} ", connection)
    assert re.search(rf"^{member.topic} +paid \|\| sent$", connection, re.MULTILINE)
    assert re.search(rf"^%RETRY%{member.group} +\*$", connection, re.MULTILINE)
    assert "CONSUME_PASSIVELY" in connection
    assert "CLUSTERING" in connection


def test_consumer_status_is_told_how_our_member_is(member: Member, tmp_path: Path) -> None:
    """The tool compares the subscriptions of all members, and writes what each says of itself into a file."""
    said = mqadmin("consumerStatus", "-g", member.group, folder=tmp_path)
    assert "Same subscription in the same group of consumer" in said
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert re.search(rf"{member.topic} +.*paid \|\| sent", file.read_text())


def test_consumer_status_tells_queues_offsets_and_rates(member: Member) -> None:
    """Of one member: what each of its queues holds, how far it is, and how fast its topics go."""
    member.publish(*[b"k%d" % number for number in range(10)])
    deliveries = member.sink.wait_for(10)
    assert not member.adapter.acknowledge(deliveries[:6])
    subscription = Subscription("c", member.topic, member.group, {})
    eventually(lambda: member.adapter.depth(subscription) == 4)
    own = member.adapter._members[0]  # type: ignore[attr-defined]
    own._rates.sample()
    said = mqadmin("consumerStatus", "-g", member.group, "-i", own._presence.client)
    (offset, *_) = re.findall(rf"^{member.topic} +broker-a +0 +(\d+) *$", said, re.MULTILINE)
    assert offset == "6"
    held = re.search(rf"^{member.topic} +broker-a +0 +ProcessQueueInfo (.*)$", said, re.MULTILINE)
    assert held is not None, said
    for told in (
        "commitOffset=6",
        "cachedMsgMinOffset=6",
        "cachedMsgMaxOffset=9",
        "cachedMsgCount=4",
        "droped=false",
    ):
        assert told in held[1]
    rates = re.search(
        rf"^{member.topic} +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +(\d+) *$", said, re.MULTILINE
    )
    assert rates is not None, said
    pull_time, pulls, consume_time, fine, failed, failures = map(float, rates.groups())
    assert min(pulls, consume_time, fine) > 0
    assert (failed, failures) == (0, 0)
    assert pull_time >= 0


def test_consumer_progress_says_who_has_a_queue(member: Member) -> None:
    """With -s the tool asks every member for its queues, and names its client."""
    member.publish(b"k")
    member.sink.wait_for(1)
    progress = mqadmin("consumerProgress", "-g", member.group, "-s", "true")
    (row,) = [line for line in progress.splitlines() if line.startswith(member.topic)]
    own = member.adapter._members[0]._presence.client  # type: ignore[attr-defined]
    assert own.partition("@")[0] in row, progress


def test_reset_offset_by_time_sets_a_running_member_back(member: Member) -> None:
    """Everything comes again, without a restart, and the log says why; what is settled then counts again."""
    member.publish(b"a", b"b")
    assert not member.adapter.acknowledge(member.sink.wait_for(2))
    subscription = Subscription("c", member.topic, member.group, {})
    eventually(lambda: member.adapter.depth(subscription) == 0)
    with capture_logs() as logged:
        mqadmin("resetOffsetByTime", "-g", member.group, "-t", member.topic, "-s", "0")
        again = member.sink.wait_for(4)[2:]
    assert {entry["event"] for entry in logged} == {"offset of a queue was reset by an administrator"}
    assert sorted(delivery.message.body for delivery in again) == [b"a", b"b"]
    assert not member.adapter.acknowledge(again)
    eventually(lambda: member.adapter.depth(subscription) == 0)


def test_queries_find_our_dead_letters(member: Member) -> None:
    """By the business key and by printing the topic: with body, tag, reason and where it came from."""
    member.publish(b"k1")
    dead = DeadLetterRequest(member.sink.wait_for(1)[0], {names.REASON: "rejected"})
    assert not member.adapter.dead_letter([dead])
    place = f"%DLQ%{member.group}"
    found = mqadmin("queryMsgByKey", "-t", place, "-k", "k1")
    assert re.search(r"^[0-9A-F]{32} +0 +0$", found, re.MULTILINE)
    printed = mqadmin("printMsg", "-t", place)
    assert f"DLQ_ORIGIN_TOPIC={member.topic}" in printed
    assert f"{names.REASON}=rejected" in printed
    assert "TAGS=paid" in printed
    assert "BODY: k1" in printed


def test_a_reset_runs_what_was_forgotten(rocketmq_url: str, tmp_path: Path) -> None:
    """After `oncemq forget` of one key an administrator's reset runs its message again; the other one stays a duplicate."""
    topic, group = f"t{uuid4().hex[:8]}", f"g{uuid4().hex[:8]}"
    ran: list[str] = []
    app = App("shop", brokers={"main": rocketmq_url}, database=f"sqlite:///{tmp_path}/shop.db")
    app.topic(topic, key="body.id", strategies=["unique_key"], queues=1, create=True)

    @app.consumer(topic=topic, name="count", group=group)
    def count(body: dict[str, str], session: Session) -> None:
        ran.append(body["id"])

    app.create_tables()
    app.start()
    try:
        for key in ("a", "b"):
            app.publish(topic, {"id": key})
        eventually(lambda: len(ran) == 2)
        plan = app.plan()
        asked = Forgetting(plan, plan.consumers[0], Choice(("a",)))
        assert [known.identity for known in asked.look()] == ["a"]
        assert asked.remove(Operator(why="test")) == 1
        mqadmin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
        eventually(lambda: len(ran) == 3)
        app.publish(topic, {"id": "c"})
        eventually(lambda: len(ran) == 4)
    finally:
        app.stop()
    assert ran[2:] == ["a", "c"]
