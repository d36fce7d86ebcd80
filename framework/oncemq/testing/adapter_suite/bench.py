"""Bench for the suite's tests: topics, members and publishers, all closed at its end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from threading import Event
from time import monotonic

import pytest

from oncemq.contracts.adapter import Adapter, Confirmed, RetryRequest, SettleFailed, Subscription
from oncemq.message import headers as names
from oncemq.message.envelope import Delivery, OutgoingMessage
from oncemq.testing.adapter_suite.harness import AdapterHarness, Topic
from oncemq.testing.recording_sink import RecordingSink


@dataclass(frozen=True, slots=True)
class Member:
    """An open adapter and the sink it delivers to."""

    adapter: Adapter
    sink: RecordingSink


class Bench:
    """Creates the objects that a test needs and cleans up after it."""

    def __init__(self, harness: AdapterHarness) -> None:
        self.harness = harness
        self._adapters: list[Adapter] = []
        self._publisher: Adapter | None = None

    def topic(self, name: str = "topic") -> Topic:
        """Return a fresh topic."""
        return self.harness.topic(name)

    def subscription(
        self, topic: Topic, group: str = "group", *, consumer: str | None = None, in_flight: int = 1000
    ) -> Subscription:
        """Return a subscription of `group`; its consumer has the group's name unless given."""
        return Subscription(consumer or group, topic.name, group, topic.options, in_flight)

    def adopt(self, adapter: Adapter) -> Adapter:
        """Close this adapter too when the test ends."""
        self._adapters.append(adapter)
        return adapter

    def open(self, *subscriptions: Subscription, adapter: Adapter | None = None) -> Member:
        """Return a new member that consumes these subscriptions."""
        member = Member(self.adopt(adapter or self.harness.make_adapter()), RecordingSink())
        member.adapter.open(subscriptions, member.sink)
        return member

    def reopen(self, member: Member, *subscriptions: Subscription) -> Member:
        """Close a member and return another one."""
        self.close(member)
        return self.open(*subscriptions)

    def close(self, member: Member) -> None:
        """Close a member as a draining worker does."""
        member.adapter.close(grace=timedelta(seconds=5))

    def publisher(self) -> Adapter:
        """Return the test's publisher."""
        if self._publisher is None:
            self._publisher = self.adopt(self.harness.make_adapter())
            self._publisher.prepare([])
        return self._publisher

    def prepare(self, *subscriptions: Subscription) -> Adapter:
        """Return an adapter that knows these groups and consumes nothing."""
        adapter = self.adopt(self.harness.make_adapter())
        adapter.prepare(subscriptions)
        return adapter

    def publish(self, topic: Topic, *messages: bytes | OutgoingMessage) -> None:
        """Publish and require every confirmation."""
        outgoing = [
            OutgoingMessage(message) if isinstance(message, bytes) else message for message in messages
        ]
        answers = self.publisher().publish(topic.name, topic.options, outgoing)
        assert len(answers) == len(messages)
        assert all(isinstance(answer, Confirmed) for answer in answers), answers

    def only_where(self, capability: str) -> None:
        """Skip the test where the adapter does not claim this capability and there is nothing to check instead."""
        if not getattr(self.harness.capabilities, capability):
            pytest.skip(f"the adapter claims no {capability}")

    def only_where_not(self, capability: str) -> None:
        """Skip the test where the adapter claims this capability, and another test checks it."""
        if getattr(self.harness.capabilities, capability):
            pytest.skip(f"the adapter claims {capability}")

    def receive(self, member: Member, count: int, consumer: str | None = None) -> list[Delivery]:
        """Return exactly `count` deliveries; more than that is an error at once."""
        deliveries = member.sink.wait_for(count, self.harness.patience, consumer)
        assert len(deliveries) == count, [delivery.message for delivery in deliveries]
        return deliveries

    def nothing_more(self, member: Member, count: int, consumer: str | None = None) -> None:
        """Require that no delivery arrives beyond the first `count`."""
        assert member.sink.stays_at(count, self.harness.silence, consumer), member.sink.bodies(consumer)

    def settled(self, failed: Sequence[SettleFailed]) -> None:
        """Require that every settlement worked."""
        assert not failed, [(failure.delivery, failure.error) for failure in failed]

    def eventually(self, reached: Callable[[], bool], wanted: str) -> None:
        """Wait until `reached()`, polling; for states without a signal."""
        deadline, pause = monotonic() + self.harness.patience, Event()
        while not reached():
            assert monotonic() < deadline, f"waited {self.harness.patience} s for {wanted}"
            pause.wait(0.02)

    def subscribed(self, member: Member) -> bool:
        """Return whether every expected consumer is subscribed now."""
        rows = member.adapter.health()
        return bool(rows) and all(row.subscribed for row in rows)

    def close_all(self) -> None:
        """Close everything that the test has opened."""
        for adapter in self._adapters:
            adapter.close(grace=timedelta(seconds=1))


def later(delivery: Delivery, seconds: float, **added: str) -> RetryRequest:
    """Return the request to retry `delivery`, as the engine makes it: the next attempt is in the headers."""
    attempt = {names.ATTEMPT: str(delivery.message.attempt + 1)}
    return RetryRequest(delivery, timedelta(seconds=seconds), {**attempt, **added})


def bodies(deliveries: Sequence[Delivery]) -> list[bytes]:
    """Return the deliveries' bodies, in order."""
    return [delivery.message.body for delivery in deliveries]


def numbered(count: int) -> list[bytes]:
    """Return distinct bodies whose order can be checked."""
    return [f"message {number:05}".encode() for number in range(count)]
