"""Back-pressure and a position that does not move, on a real Kafka."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.adapter_suite import Topic
from oncemq.testing.adapter_suite.bench import Bench
from oncemq_adapters.kafka import progress
from support.brokers.kafka import SharedKafka

LARGE, MESSAGES, FEW = 64 * 1024, 2400, 5
MOST = 72 * 1024 * 1024
"""Bytes by which a member may grow: what its client fetches ahead (16 MB, and an answer of one fetch more), not the 150 MB that wait."""


@pytest.fixture
def bench(kafka_url: str) -> Iterator[Bench]:
    """Yield a bench on the shared server."""
    bench = Bench(SharedKafka(kafka_url))
    yield bench
    bench.close_all()


def resident() -> int:
    """Return the bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_what_waits_behind_a_full_member_is_not_in_its_memory(bench: Bench) -> None:
    """A member that holds all it may takes no more, however much there is; settling a few brings the next few."""
    name, options = bench.topic()
    topic = Topic(name, {**options, "partitions": 2})
    subscription = bench.subscription(topic, in_flight=FEW)
    bench.prepare(subscription)
    body = os.urandom(LARGE)
    for start in range(0, MESSAGES, 200):
        bench.publish(topic, *(OutgoingMessage(body, key=str(n)) for n in range(start, start + 200)))
    before = resident()
    member = bench.open(subscription)
    bench.receive(member, FEW)
    assert member.sink.stays_at(FEW, 2.0)
    assert resident() - before < MOST
    bench.settled(member.adapter.acknowledge(member.sink.deliveries()))
    bench.receive(member, 2 * FEW)


def test_a_position_that_stands_still_is_unhealthy(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that has the partition and its brokers, but takes nothing of what they send, is named with the partition."""
    monkeypatch.setattr(progress, "STALLED", 1.0)
    name, options = bench.topic()
    topic = Topic(name, {**options, "partitions": 1})
    member = bench.open(bench.subscription(topic))
    consuming = next(found for found in member.adapter._members if found.place.topic.name == found._reads)  # type: ignore[attr-defined]
    monkeypatch.setattr(consuming, "_take", lambda _raw: None)
    assert bench.subscribed(member)
    bench.publish(topic, b"untaken")
    bench.eventually(lambda: not bench.subscribed(member), "the row of a stuck consumer")
    (row,) = member.adapter.health()
    assert f"partition 0 of {consuming._reads} stands at 0" in row.detail
