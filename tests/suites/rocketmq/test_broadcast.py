"""`mode: broadcast` on a real broker: every instance gets every message once, however often it stops and fails."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest

from oncemq import App, Envelope, Reject, Retry
from oncemq.contracts.adapter import Confirmed, ConsumerHealth, Subscription
from oncemq.ledger.coordination import broadcast
from oncemq.ledger.messages import parking
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rocketmq.address import parse_address
from oncemq_adapters.rocketmq.remoting.operations import Operations
from support.brokers.rocketmq import adapter_on
from support.brokers.rocketmq_queues import QueueConsole

PAUSE = {"attempts": 3, "backoff": {"first": "200ms", "factor": 1, "jitter": 0}}


class Instance:
    """An app that runs as one instance, and notes what its handler was called with.

    Attributes:
        name: of the instance.
        ran: the ids of all calls.
        attempts: the attempts of all calls.
        failing: the handler raises while this is set.
    """

    def __init__(self, fleet: "Fleet", name: str, **options: Any) -> None:
        self.name = name
        self.ran: list[str] = []
        self.attempts: list[int] = []
        self.failing: Exception | None = None
        self._lock = Lock()
        effects = options.pop("effects", "database")
        self.app = App(
            "shop",
            brokers={"main": fleet.url},
            database=f"sqlite:///{fleet.folder}/shop.db",
            instance=name,
            state=str(fleet.folder / f"state-{uuid4().hex[:6]}"),
        )
        options.setdefault("strategies", ["unique_key" if effects == "database" else "two_phase"])
        self.app.topic(fleet.topic, key="body.id", identity="key", queues=4, create=True, **options)

        @self.app.consumer(
            topic=fleet.topic,
            name="refresh",
            group=fleet.group,
            mode="broadcast",
            effects=effects,
            retry=PAUSE,
        )
        def refresh(body: dict[str, str], envelope: Envelope) -> None:
            with self._lock:
                self.ran.append(body["id"])
                self.attempts.append(envelope.attempt)
            if self.failing is not None:
                raise self.failing

        self.app.create_tables()

    def start(self) -> "Instance":
        """Start it."""
        self.app.start()
        return self

    def stop(self) -> None:
        """Stop it."""
        self.app.stop()

    def letters(self) -> list[str]:
        """Return the ids of its dead letters."""
        return [letter.id for letter in self.app.dead_letters.list("refresh")]

    def waiting(self) -> int:
        """Return how many messages wait for another try."""
        engine = self.app.engine()
        try:
            with engine.connect() as connection:
                return parking.count(connection, f"shop.refresh@{self.name}")
        finally:
            engine.dispose()

    def health(self) -> Sequence[ConsumerHealth]:
        """Return the health of its consumer."""
        running = self.app._running
        assert running is not None
        return running._application._plan.adapters["main"].health()


class Fleet:
    """Instances that share a topic, a group and a database."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.topic, self.group = f"t{uuid4().hex[:8]}", f"g{uuid4().hex[:8]}"
        self._all: list[Instance] = []
        self._publisher = adapter_on(url)
        self._publisher.prepare([self._subscription()])

    def _subscription(self) -> Subscription:
        return Subscription("publisher", self.topic, f"{self.group}p", {"queues": 4, "create": True})

    def look_again(self) -> None:
        """Publish to the queues that there are now."""
        self._publisher.close(grace=timedelta(seconds=5))
        self._publisher = adapter_on(self.url)
        self._publisher.prepare([self._subscription()])

    def instance(self, name: str, **options: Any) -> Instance:
        """Return an instance that does not run yet."""
        made = Instance(self, name, **options)
        self._all.append(made)
        return made

    def publish(self, *ids: str) -> None:
        """Publish a message for each id."""
        for each in ids:
            (answer,) = self._publisher.publish(
                self.topic, {}, [OutgoingMessage(b'{"id": "%b"}' % each.encode(), key=each)]
            )
            assert isinstance(answer, Confirmed), answer

    def stop(self) -> None:
        """Stop all."""
        self._publisher.close(grace=timedelta(seconds=5))
        for each in self._all:
            each.stop()


@pytest.fixture
def fleet(rocketmq_url: str, tmp_path: Path) -> Iterator[Fleet]:
    """Instances of one test."""
    fleet = Fleet(rocketmq_url, tmp_path)
    yield fleet
    fleet.stop()


def eventually(reached: Callable[[], bool], timeout: float = 30) -> None:
    """Wait until `reached()`."""
    deadline, pause = monotonic() + timeout, Event()
    while not reached():
        assert monotonic() < deadline, f"waited {timeout} s"
        pause.wait(0.05)


def test_every_instance_gets_every_message_once(fleet: Fleet) -> None:
    """Each applies all of them, with records of its own in the ledger that they share."""
    first, second = fleet.instance("a").start(), fleet.instance("b").start()
    ids = [f"m{number}" for number in range(40)]
    fleet.publish(*ids)
    eventually(lambda: len(first.ran) >= 40 and len(second.ran) >= 40)
    assert sorted(first.ran) == sorted(second.ran) == sorted(ids)


def test_a_restarted_instance_goes_on_where_it_was(fleet: Fleet) -> None:
    """It gets what was published meanwhile, and nothing once more."""
    before = fleet.instance("a").start()
    fleet.publish("one", "two")
    eventually(lambda: len(before.ran) == 2)
    before.stop()
    fleet.publish("three")
    after = fleet.instance("a", strategies=["none"]).start()
    eventually(lambda: bool(after.ran))
    fleet.publish("four")
    eventually(lambda: "four" in after.ran)
    assert sorted(after.ran) == ["four", "three"]


def test_a_new_instance_begins_where_the_topic_says(fleet: Fleet) -> None:
    """At the first message, which the broker still has, or behind the last one; the choice of one is not the other's."""
    old = fleet.instance("a").start()
    fleet.publish("one", "two")
    eventually(lambda: len(old.ran) == 2)
    at_last, at_first = fleet.instance("b", start="last").start(), fleet.instance("c", start="first").start()
    eventually(lambda: sorted(at_first.ran) == ["one", "two"])
    fleet.publish("three")
    eventually(lambda: bool(at_last.ran) and len(at_first.ran) == 3)
    assert at_last.ran == ["three"]


def test_a_queue_that_is_added_is_read_from_its_beginning(fleet: Fleet) -> None:
    """Also by an instance that began at the end: everything in it was published after that."""
    old = fleet.instance("a", start="last").start()
    fleet.publish("zero")
    eventually(lambda: old.ran == ["zero"])
    old.stop()
    console = QueueConsole(Operations(parse_address(fleet.url, {}), "console"))
    try:
        console.set_queues(fleet.topic, 12)
    finally:
        console.desk.close(5)
    fleet.look_again()
    ids = [f"m{number}" for number in range(60)]
    fleet.publish(*ids)
    after = fleet.instance("a", start="last").start()
    eventually(lambda: len(after.ran) >= 60)
    assert sorted(after.ran) == sorted(ids)


@pytest.mark.parametrize("effects", ["database", "external"])
def test_a_retry_is_the_instances_own_and_survives_a_restart(fleet: Fleet, effects: str) -> None:
    """What one instance could not apply is tried again by it, with its attempts; the other one hears nothing of it."""
    fine, failing = fleet.instance("a", effects=effects).start(), fleet.instance("b", effects=effects)
    failing.failing = Retry("later")
    failing.start()
    fleet.publish("one")
    eventually(lambda: len(failing.ran) >= 1)
    failing.stop()
    again = fleet.instance("b", effects=effects).start()
    eventually(lambda: bool(again.ran))
    assert again.attempts[0] == len(failing.ran) + 1
    fleet.publish("two")
    eventually(lambda: "two" in fine.ran and "two" in again.ran)
    assert sorted(fine.ran) == sorted(again.ran) == ["one", "two"]


@pytest.mark.parametrize("effects", ["database", "external"])
def test_a_dead_letter_is_replayed_to_its_instance_alone(fleet: Fleet, effects: str) -> None:
    """It lies in the ledger, listed by the instance that could not apply it, and is gone when that has."""
    fine, failing = fleet.instance("a", effects=effects).start(), fleet.instance("b", effects=effects)
    failing.failing = Retry("later")
    failing.start()
    fleet.publish("one")
    eventually(lambda: len(failing.letters()) == 1)
    assert (len(failing.ran), fine.letters()) == (PAUSE["attempts"], [])
    failing.failing = None
    assert failing.app.dead_letters.replay("refresh", everything=True) == 1
    eventually(lambda: len(failing.ran) == PAUSE["attempts"] + 1)
    assert failing.attempts[-1] == 1
    eventually(lambda: failing.letters() == [] and failing.waiting() == 0)
    assert fine.ran == ["one"]


def test_a_rejected_message_does_not_stop_an_instance(fleet: Fleet) -> None:
    """It is a dead letter at once, and the queue goes on."""
    only = fleet.instance("a")
    only.failing = Reject("never")
    only.start()
    fleet.publish("one")
    eventually(lambda: len(only.letters()) == 1)
    only.failing = None
    fleet.publish("two")
    eventually(lambda: "two" in only.ran)
    assert only.ran == ["one", "two"]


def test_a_second_process_of_an_instance_waits_and_takes_over(fleet: Fleet) -> None:
    """One process consumes for an instance; it is said which, and when it stops the other one goes on."""
    first = fleet.instance("a").start()
    fleet.publish("one")
    eventually(lambda: first.ran == ["one"])
    second = fleet.instance("a").start()
    (row,) = second.health()
    assert row.subscribed
    assert "consumed by process" in row.detail
    fleet.publish("two")
    eventually(lambda: first.ran == ["one", "two"])
    assert second.ran == []
    first.stop()
    fleet.publish("three")
    eventually(lambda: second.ran == ["three"])


def test_what_an_instance_that_died_had_applied_is_not_applied_again(fleet: Fleet) -> None:
    """Positions are saved a moment later than effects; between the two lies the record."""
    first = fleet.instance("a").start()
    fleet.publish(*[f"m{number}" for number in range(10)])
    eventually(lambda: len(first.ran) == 10)
    first.stop()
    engine = first.app.engine()
    with engine.begin() as connection:
        connection.execute(broadcast.TABLE.update().values(position=0))
    engine.dispose()
    again = fleet.instance("a").start()
    fleet.publish("last")
    eventually(lambda: "last" in again.ran)
    assert again.ran == ["last"]


def test_a_member_that_shares_the_group_is_found(fleet: Fleet) -> None:
    """A broker knows one of both ways for a group; `check --connect` says who has the other one."""
    adapter = adapter_on(fleet.url)
    adapter.open([Subscription("c", fleet.topic, fleet.group, {"create": True})], RecordingSink())
    try:
        plan = fleet.instance("a").app.plan()
        (consumer,) = plan.consumers
        found = plan.adapters["main"].concerns([consumer.subscription])  # type: ignore[attr-defined]
    finally:
        adapter.close(grace=timedelta(seconds=5))
    assert any("shares its messages with others" in line for line in found), found


def test_the_backlog_of_an_instance_is_its_own(fleet: Fleet) -> None:
    """What it has not read yet, counted from its positions."""
    first = fleet.instance("a").start()
    fleet.publish("one", "two")
    eventually(lambda: len(first.ran) == 2)
    first.stop()
    fleet.publish("three")
    for name, waiting in (("a", 1), ("b", 3)):
        plan = fleet.instance(name).app.plan()
        (consumer,) = plan.consumers
        adapter = plan.adapters["main"]
        try:
            assert adapter.depth(consumer.subscription) == waiting
        finally:
            adapter.close(grace=timedelta(seconds=5))
