"""Holds the partitions that a member has, and what of them waits to be delivered: now, or when it is due."""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from threading import Lock
from time import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from oncemq_adapters.kafka.names import Place
from oncemq_adapters.kafka.records import due_of
from oncemq_adapters.kafka.tracker import Entry, PartitionTracker
from oncemq_adapters.start import FIRST, LAST

Key = tuple[str, int]
"""Topic and number of a partition."""

ASK = 5.0
"""Seconds for one question."""
WINDOW, WINDOW_BYTES = 1000, 16 * 1024 * 1024
"""Retries of one partition that wait in memory for their time; with more of them the partition is paused."""


class Assignment:
    """The partitions of one member; used by its polling thread alone.

    Args:
        retries: the topic of the group's retries.
    """

    def __init__(self, retries: str) -> None:
        self.retries = retries
        self.trackers: dict[Key, PartitionTracker] = {}
        self.ready: deque[Entry] = deque()
        self._due: list[tuple[float, int, Entry]] = []
        self._waiting: dict[Key, list[int]] = {}
        self._numbers = itertools.count()

    def add(self, tracker: PartitionTracker) -> None:
        """Add a partition."""
        self.trackers[tracker.topic, tracker.number] = tracker

    def remove(self, keys: Iterable[Key]) -> None:
        """Forget partitions, with what of them waits."""
        for key in keys:
            self.trackers.pop(key, None)
            self._waiting.pop(key, None)
        gone = [entry for entry in self.ready if entry.tracker.void]
        if gone:
            self.ready = deque(entry for entry in self.ready if not entry.tracker.void)
        if any(entry.tracker.void for _, _, entry in self._due):
            self._due = [item for item in self._due if not item[2].tracker.void]
            heapq.heapify(self._due)

    def take(self, raw: Any) -> None:
        """Add a received record; it waits where it is not due."""
        key = raw.topic(), raw.partition()
        tracker = self.trackers.get(key)
        entry = None if tracker is None else tracker.add(raw)
        if entry is None:
            return
        due = due_of(raw) if key[0] == self.retries else 0.0
        if due <= time():
            self.ready.append(entry)
            return
        waiting = self._waiting.setdefault(key, [0, 0])
        waiting[0] += 1
        waiting[1] += len(raw)
        heapq.heappush(self._due, (due, next(self._numbers), entry))

    def return_first(self, entries: Iterable[Entry]) -> None:
        """Put given back messages in front of those that wait, in their order."""
        self.ready.extendleft(sorted(entries, key=lambda entry: entry.offset, reverse=True))

    def make_due_ready(self) -> None:
        """Let retries go whose time has come."""
        now = time()
        while self._due and self._due[0][0] <= now:
            entry = heapq.heappop(self._due)[2]
            waiting = self._waiting.get((entry.tracker.topic, entry.tracker.number))
            if waiting is not None and entry.raw is not None:
                waiting[0] -= 1
                waiting[1] -= len(entry.raw)
            self.ready.append(entry)

    def seconds_to_due(self, most: float) -> float:
        """Return how long to the next retry, at most so many seconds."""
        return min(most, max(0.0, self._due[0][0] - time())) if self._due else most

    def is_full(self, key: Key) -> bool:
        """Return whether as many retries of a partition wait as may."""
        waiting = self._waiting.get(key)
        return waiting is not None and (waiting[0] >= WINDOW or waiting[1] >= WINDOW_BYTES)

    @property
    def out(self) -> int:
        """How many deliveries are out and unsettled."""
        return sum(tracker.out for tracker in self.trackers.values())

    def changed(self) -> Iterator[PartitionTracker]:
        """Yield the partitions that have something to commit."""
        return (tracker for tracker in self.trackers.values() if tracker.changed)


class Window:
    """How many deliveries of a subscription may be out, over both of its members.

    Args:
        size: the limit.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.members: list[Any] = []
        self.lock = Lock()
        self.generations = itertools.count(1)

    def room(self) -> int:
        """Return how many more may go out."""
        return self.size - int(sum(member.out for member in self.members))


def first_offset(
    client: Any, insist: Callable[[Callable[[], Any]], Any], place: Place, partition: TopicPartition
) -> int:
    """Return where a partition begins for a group that never committed there.

    Args:
        client: asks the brokers.
        insist: asks until an answer comes; None when stopping.
        place: the subscription's topics.
        partition: which.
    """
    start = place.topic.start
    asked = TopicPartition(partition.topic, partition.partition)
    low, high = insist(lambda: client.get_watermark_offsets(asked, timeout=ASK)) or (OFFSET_BEGINNING, 0)
    if partition.topic == place.retries or start in (FIRST, LAST):
        # With start: last, the offsets were set when the group was made; a partition without one is new.
        return int(low)
    if isinstance(start, datetime):
        asked.offset = round(start.timestamp() * 1000)
        found = insist(lambda: client.offsets_for_times([asked], timeout=ASK))
        if found and found[0].offset >= 0:
            return int(found[0].offset)
    return int(high)
