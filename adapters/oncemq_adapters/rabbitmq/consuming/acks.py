"""Acknowledges settled delivery tags of one channel with the fewest frames.

A finished prefix is acknowledged by one frame. What waits behind an unfinished tag is acknowledged one by
one when the gap stays, because it would otherwise use up the prefetch window.
"""

from dataclasses import dataclass
from threading import Lock

GAP_PATIENCE = 0.05
"""Seconds; a gap that closes sooner costs nothing, one that stays costs a frame per message."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame to send: acknowledge `tag` (`multiple`: and all before it), or requeue it."""

    tag: int
    multiple: bool = False
    requeue: bool = False


class AckTracker:
    """Every tag is settled at most once; safe to call from any thread.

    Args:
        window: the prefetch; finished tags may wait behind a gap until a quarter of it is taken.
    """

    def __init__(self, window: int) -> None:
        self._lock = Lock()
        self._most_waiting = max(1, window // 4)
        self._lowest = 1
        self._last = 0
        self._taken: set[int] = set()
        self._ready: set[int] = set()
        self._told: set[int] = set()
        self._returned: list[int] = []
        self._left = 0
        self._gap = 0
        self._gap_since = 0.0

    def delivered(self, tag: int) -> None:
        """Note a new tag; those that were skipped were settled by the client library itself."""
        if tag != self._last + 1:
            with self._lock:
                skipped = range(self._last + 1, tag)
                self._taken.update(skipped)
                self._told.update(skipped)
        self._last = tag

    def claim(self, tag: int) -> bool:
        """Reserve a tag for settling; False if it is already reserved."""
        with self._lock:
            if tag < self._lowest or tag in self._taken:
                return False
            self._taken.add(tag)
            return True

    def unclaim(self, tag: int) -> None:
        """Make a claimed tag unsettled again."""
        with self._lock:
            self._taken.discard(tag)

    def finish(self, tag: int) -> None:
        """Have a claimed tag acknowledged by the next `frames`."""
        with self._lock:
            self._ready.add(tag)

    def give_back(self, tag: int) -> None:
        """Have a claimed tag requeued by the next `frames`."""
        with self._lock:
            self._returned.append(tag)

    def leave(self) -> None:
        """Leave a claimed tag as it is, until the channel is closed."""
        with self._lock:
            self._left += 1

    def frames(self, now: float, *, everything: bool = False) -> list[Frame]:
        """Return what to send, in this order, as of `now`; what is returned counts as sent.

        Args:
            now: monotonic seconds.
            everything: do not wait for gaps to close.
        """
        with self._lock:
            frames = self._requeue()
            self._acknowledge_prefix(frames)
            if self._ready and (everything or self._gap_stays(now)):
                self._acknowledge_each(frames)
            return frames

    def unsettled(self) -> int:
        """Return how many delivered tags are neither finished, nor given back, nor left."""
        with self._lock:
            done = len(self._ready) + len(self._told) + len(self._returned) + self._left
            return self._last - self._lowest + 1 - done

    def first_open(self) -> int:
        """Return the lowest tag that is not finished; of the next delivery if all are."""
        with self._lock:
            tag = self._lowest
            while tag in self._ready or tag in self._told:
                tag += 1
            return tag

    def is_waiting(self) -> bool:
        """Return whether finished tags wait for a gap to close."""
        return bool(self._ready)

    def _requeue(self) -> list[Frame]:
        frames = [Frame(tag, requeue=True) for tag in self._returned]
        self._told.update(self._returned)
        self._returned.clear()
        return frames

    def _acknowledge_prefix(self, frames: list[Frame]) -> None:
        tag, top, count = self._lowest, 0, 0
        ready, told, taken = self._ready, self._told, self._taken
        while True:
            if tag in ready:
                ready.remove(tag)
                top = tag
                count += 1
            elif tag in told:
                told.remove(tag)
            else:
                break
            taken.discard(tag)
            tag += 1
        self._lowest = tag
        # Never name a tag that was settled before: the broker would close the channel.
        if count:
            frames.append(Frame(top, multiple=count > 1))

    def _gap_stays(self, now: float) -> bool:
        if self._gap != self._lowest:
            self._gap, self._gap_since = self._lowest, now
        return len(self._ready) >= self._most_waiting or now - self._gap_since >= GAP_PATIENCE

    def _acknowledge_each(self, frames: list[Frame]) -> None:
        frames.extend(Frame(tag) for tag in sorted(self._ready))
        self._told.update(self._ready)
        self._ready.clear()
