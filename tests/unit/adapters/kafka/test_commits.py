"""Commits of a member: what was not taken is sent again, and metadata that is not taken is left out."""

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from oncemq_adapters.kafka import commits as module
from oncemq_adapters.kafka.assignment import ASK, Assignment
from oncemq_adapters.kafka.commits import Commits
from oncemq_adapters.kafka.tracker import Entry, PartitionTracker


class Raw:
    """A record with nothing but its offset."""

    def __init__(self, number: int) -> None:
        self._number = number

    def offset(self) -> int:
        """Return it."""
        return self._number


class Client:
    """Remembers what it is told to commit."""

    def __init__(self) -> None:
        self.told: list[list[tuple[int, str | None]]] = []

    def commit(self, *, offsets: Sequence[TopicPartition], asynchronous: bool) -> None:
        """Take them."""
        del asynchronous
        self.told.append([(partition.offset, partition.metadata) for partition in offsets])


class Bench:
    """One member with one partition of ten messages that are out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(module, "monotonic", lambda: self.now)
        self.assignment = Assignment("retries")
        self.tracker = PartitionTracker(None, "orders", 0, 1, 0)
        self.assignment.add(self.tracker)
        raws: list[Any] = [Raw(number) for number in range(10)]
        self.entries = [entry for raw in raws if (entry := self.tracker.add(raw))]
        assert all(self.tracker.deliver(entry) for entry in self.entries)
        self.client = Client()
        self.commits = Commits("count", self.assignment)

    def settle(self, *numbers: int) -> None:
        """Settle some of them."""
        entries: list[Entry] = [self.entries[number] for number in numbers]
        assert [self.tracker.claim(entry) for entry in entries] == [None] * len(entries)
        assert self.tracker.settle(entries) == []

    def send(self, after: float = 1.0) -> list[tuple[int, str | None]]:
        """Return what is committed after some time; nothing if there is nothing new."""
        self.now += after
        self.client.told.clear()
        self.commits.send(self.client, self.assignment.changed())
        return self.client.told[0] if self.client.told else []

    def answer(self, code: int | None = None) -> None:
        """Let the broker answer."""
        error = None if code is None else KafkaError(code)
        self.commits.answered(error, [TopicPartition("orders", 0, 0)])


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return one."""
    return Bench(monkeypatch)


def test_metadata_that_a_broker_refuses_stops_no_commit(bench: Bench) -> None:
    """The same offset is committed again without it, and so are all that follow."""
    bench.settle(0, 2, 4)
    ((offset, metadata),) = bench.send()
    assert (offset, bool(metadata)) == (1, True)
    bench.answer(KafkaError.OFFSET_METADATA_TOO_LARGE)
    assert bench.send() == [(1, "")]
    bench.answer()
    bench.settle(1)
    assert bench.send() == [(3, "")]


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError._TIMED_OUT,
    ],
)
def test_a_commit_that_fails_is_sent_again(bench: Bench, code: int) -> None:
    """A rebalance or an outage refuses it; nothing new has to be settled for the next one."""
    bench.settle(0, 1)
    assert bench.send() == [(2, "")]
    bench.answer(code)
    assert bench.send() == [(2, "")]
    bench.answer()
    assert bench.send() == []


def test_one_commit_is_on_its_way_at_a_time(bench: Bench) -> None:
    """The next one waits for the answer, and one that is never answered is given up."""
    bench.settle(0)
    assert bench.send() == [(1, "")]
    bench.settle(1)
    assert bench.send() == []
    assert bench.send(after=ASK) == [(2, "")]


def test_a_commit_that_is_never_answered_is_sent_again(bench: Bench) -> None:
    """Its coordinator has died with it; nothing new has to be settled for the next one."""
    bench.settle(0)
    assert bench.send() == [(1, "")]
    assert bench.send(after=ASK) == [(1, "")]
    bench.answer()
    assert bench.send(after=ASK) == []
