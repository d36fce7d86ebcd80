"""Counts of the last seconds: of outcomes exactly, of keys in bounded memory."""

from collections import Counter, deque
from collections.abc import Iterable

_BUCKETS = 10
_KEPT = 200
"""Keys that a summary keeps: a count is too low by at most 1/201 of the messages."""
_MOST = 2_000
"""Distinct keys that are counted before a summary is made of them."""


class Totals:
    """Messages of a moment.

    Attributes:
        messages: all of them.
        duplicates: those that had been applied before.
        failures: those that failed.
    """

    __slots__ = ("duplicates", "failures", "messages")

    def __init__(self, messages: int = 0, duplicates: int = 0, failures: int = 0) -> None:
        self.messages = messages
        self.duplicates = duplicates
        self.failures = failures

    def add(self, other: "Totals") -> None:
        """Add those of another moment."""
        self.messages += other.messages
        self.duplicates += other.duplicates
        self.failures += other.failures


class Window:
    """The totals of the last seconds, forgotten in ten steps.

    Args:
        seconds: how far back it looks.
        now: monotonic seconds.
    """

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._buckets: deque[tuple[float, Totals]] = deque()
        self._begun = now

    def add(self, found: Totals, now: float) -> None:
        """Count messages that came to an end now."""
        if not self._buckets or now - self._buckets[-1][0] >= self._seconds / _BUCKETS:
            self._buckets.append((now, Totals()))
        self._buckets[-1][1].add(found)

    def total(self, now: float) -> Totals:
        """Return the totals."""
        while self._buckets and self._buckets[0][0] <= now - self._seconds:
            self._buckets.popleft()
        whole = Totals()
        for _, each in self._buckets:
            whole.add(each)
        return whole

    def length(self, now: float) -> float:
        """Return how many seconds it covers now; at least one."""
        return max(1.0, min(self._seconds, now - self._begun))


class KeyCounts:
    """How often each key was seen; with many keys, of the frequent ones only (a summary after Misra and Gries).

    A count is never too high. It is too low by at most 1/201 of all messages.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, keys: Iterable[str]) -> None:
        """Count a key for each message."""
        self._counts.update(keys)
        if len(self._counts) > _MOST:
            self.shorten()

    def shorten(self) -> None:
        """Keep the most frequent keys only."""
        if len(self._counts) <= _KEPT:
            return
        largest = sorted(self._counts.values(), reverse=True)[_KEPT]
        self._counts = Counter(
            {key: count - largest for key, count in self._counts.items() if count > largest}
        )

    def __getitem__(self, key: str) -> int:
        return self._counts[key]

    def __len__(self) -> int:
        return len(self._counts)

    def first(self, *others: "KeyCounts") -> tuple[str, int]:
        """Return the most frequent key here and in others, with its count; an empty key without any."""
        whole = self._counts.copy()
        for other in others:
            whole.update(other._counts)
        return max(whole.items(), key=lambda found: found[1], default=("", 0))


class KeyWindow:
    """The counts of keys of the last seconds, forgotten in two steps.

    Args:
        seconds: how far back it looks.
        now: monotonic seconds.
    """

    def __init__(self, seconds: float, now: float) -> None:
        self._half = seconds / 2
        self._begun = now
        self._before, self._now = KeyCounts(), KeyCounts()
        self._messages_before = self._messages_now = 0

    def add(self, keys: list[str]) -> None:
        """Count a key for each message."""
        self._now.add(keys)
        self._messages_now += len(keys)

    def first(self, now: float) -> tuple[str, int, int]:
        """Return the most frequent key with its count, and the count of all messages."""
        if now - self._begun >= self._half:
            gone = now - self._begun >= 2 * self._half
            self._before, self._messages_before = (
                (KeyCounts(), 0) if gone else (self._now, self._messages_now)
            )
            self._before.shorten()
            self._now, self._messages_now = KeyCounts(), 0
            self._begun = now
        key, count = self._now.first(self._before)
        return key, count, self._messages_now + self._messages_before
