"""Tracks the messages of one assigned partition: settled in any order, committed never past an unsettled one.

What is settled behind an unsettled message travels in the metadata of the committed offset, so that the next owner of the
partition does not deliver it again. The metadata is short; what does not fit is delivered again.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from threading import Lock
from typing import Any

PREFIX = "oncemq1:"
LONGEST = 1024
"""Characters of metadata; brokers take 4,096, and a commit that is refused for its metadata would stop all progress."""


class State(Enum):
    """What has become of a message."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    CLAIMED = "claimed"
    RETURNED = "returned"
    SETTLED = "settled"


class Entry:
    """One message of a partition, and the token of its deliveries.

    Args:
        tracker: of its partition.
        raw: as received.
    """

    __slots__ = ("offset", "raw", "state", "tracker")

    def __init__(self, tracker: "PartitionTracker", raw: Any) -> None:
        self.tracker = tracker
        self.raw = raw
        self.offset: int = raw.offset()
        self.state = State.WAITING


class PartitionTracker:
    """One assignment of one partition; safe for any number of settling threads.

    Args:
        owner: the member that has it.
        topic: on the broker.
        number: of the partition.
        generation: of this assignment; deliveries carry it.
        start: the offset of the first message.
        ahead: offsets behind `start` that were settled before.
    """

    def __init__(
        self, owner: Any, topic: str, number: int, generation: int, start: int, ahead: Iterable[range] = ()
    ) -> None:
        self.owner = owner
        self.topic = topic
        self.number = number
        self.generation = generation
        self.next = start
        self.committed: tuple[int, str] | None = None
        self._void = False
        self._lock = Lock()
        self._ahead = deque(ahead)
        self._entries: deque[Entry] = deque()
        self._out = 0
        self._changed = False

    def __repr__(self) -> str:
        return f"{self.topic}/{self.number}"

    @property
    def void(self) -> bool:
        """Whether nothing of it may be settled or committed any more."""
        return self._void

    @property
    def out(self) -> int:
        """How many deliveries are out and unsettled."""
        return self._out

    @property
    def changed(self) -> bool:
        """Whether there is something to commit."""
        return self._changed

    def add(self, raw: Any) -> Entry | None:
        """Add a received message; None if it was settled before, or was received already."""
        offset = raw.offset()
        with self._lock:
            if self._void or offset < self.next:
                return None
            self.next = offset + 1
            entry = Entry(self, raw)
            while self._ahead and self._ahead[0].stop <= offset:
                self._ahead.popleft()
            if self._ahead and offset in self._ahead[0]:
                entry.state = State.SETTLED
                entry.raw = None
            self._entries.append(entry)
            self._changed = True
            self._shorten()
            return entry if entry.state is State.WAITING else None

    def deliver(self, entry: Entry) -> bool:
        """Note that a message goes out; returns whether it may."""
        with self._lock:
            if self._void or entry.state not in (State.WAITING, State.RETURNED):
                return False
            entry.state = State.DELIVERED
            self._out += 1
            return True

    def claim(self, entry: Entry) -> State | None:
        """Reserve a delivered message for a settlement; returns why that is not possible."""
        with self._lock:
            if entry.state is not State.DELIVERED:
                return entry.state
            if self._void:
                return State.RETURNED
            entry.state = State.CLAIMED
            return None

    def unclaim(self, entry: Entry) -> None:
        """Make a claimed message unsettled again."""
        with self._lock:
            if entry.state is State.CLAIMED:
                entry.state = State.DELIVERED

    def settle(self, entries: Iterable[Entry]) -> list[Entry]:
        """Settle claimed messages; returns those for which that came too late."""
        late = []
        with self._lock:
            for entry in entries:
                if self._void:
                    entry.state = State.RETURNED
                    late.append(entry)
                    continue
                entry.state = State.SETTLED
                entry.raw = None
                self._out -= 1
            self._changed = True
            self._shorten()
        return late

    def give_back(self, entry: Entry) -> None:
        """Return a claimed or delivered message that was never started; its offset is not passed."""
        with self._lock:
            if entry.state in (State.CLAIMED, State.DELIVERED):
                entry.state = State.RETURNED
                self._out -= 1

    def make_void(self) -> None:
        """Let nothing of it be settled any more."""
        with self._lock:
            self._void = True

    def progress(self) -> tuple[int, str] | None:
        """Return the offset to commit and its metadata; None if these are committed."""
        with self._lock:
            self._changed = False
            offset = self._entries[0].offset if self._entries else self.next
            found = offset, encode(offset, self._settled_ahead())
        return None if found == self.committed else found

    def uncommitted(self) -> None:
        """Note that the last progress did not arrive."""
        self.committed = None
        self._changed = True

    def _shorten(self) -> None:
        while self._entries and self._entries[0].state is State.SETTLED:
            self._entries.popleft()

    def _settled_ahead(self) -> Iterator[range]:
        """Yield runs of settled offsets; a run ends at the next message that is not settled."""
        start: int | None = None
        for entry in self._entries:
            if entry.state is State.SETTLED:
                start = entry.offset if start is None else start
            elif start is not None:
                yield range(start, entry.offset)
                start = None
        if start is not None:
            yield range(start, self.next)
        # What was settled before and has not been received yet.
        yield from (run for run in self._ahead if run.start >= self.next)


def encode(offset: int, settled: Iterable[range]) -> str:
    """Return the metadata that says what is settled behind a committed offset; the runs that do not fit are left out."""
    found = bytearray()
    at = offset
    for run in settled:
        more = _varint(run.start - at) + _varint(len(run))
        if len(PREFIX) + (len(found) + len(more) + 2) * 4 // 3 > LONGEST:
            break
        found += more
        at = run.stop
    return PREFIX + urlsafe_b64encode(found).decode() if found else ""


def decode(offset: int, metadata: str | None) -> list[range]:
    """Return the runs of settled offsets that metadata tells; none where it is not ours."""
    if not metadata or not metadata.startswith(PREFIX):
        return []
    try:
        numbers = list(_numbers(urlsafe_b64decode(metadata[len(PREFIX) :])))
    except (ValueError, binascii.Error):
        return []
    runs, at = [], offset
    for gap, length in zip(numbers[::2], numbers[1::2], strict=False):
        runs.append(range(at + gap, at + gap + length))
        at += gap + length
    return runs


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _numbers(text: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in text:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
