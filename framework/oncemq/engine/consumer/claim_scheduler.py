"""Fetches large bodies before their messages are scheduled; messages keep the order in which they came."""

import threading
import time
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Protocol

from oncemq.common.clock import Clock
from oncemq.engine.consumer.scheduler import Scheduler
from oncemq.errors import ClaimStoreUnavailable
from oncemq.message.envelope import Delivery

HELD: Final = 64 * 1024 * 1024
"""Fetched bytes that wait or run; beyond that the next body is fetched when some have been settled."""
_LONGEST_WAIT: Final = 5.0
"""Seconds; then it is fetched anyway: deliveries that are lost with their connection are never settled."""
_LOOK: Final = 0.05
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0


class Reads(Protocol):
    """Reads deliveries, and is told when that is not possible; a consumer."""

    def read(self, delivery: Delivery) -> None:
        """Fill in envelope, key and payload; raises ClaimStoreUnavailable."""
        ...

    def store_away(self, pause: timedelta, error: ClaimStoreUnavailable) -> None:
        """Report that the store does not answer, and is asked again after the pause."""
        ...

    def store_back(self, lasted: timedelta) -> None:
        """Report that it answers again."""
        ...


class ClaimScheduler(Scheduler):
    """A scheduler whose deliveries may first have to be read, since their bodies lie in a store.

    Whose key a body belongs to is unknown before it is read. So what comes behind it waits in line, and the order in which
    messages came is kept for each key. While the store is away, the line stands; nothing in it is charged or lost.

    Args:
        clock: where time comes from.
        one_per_key: as for `Scheduler`.

    Attributes:
        consumer: reads; set before the first delivery comes.
    """

    consumer: Reads

    def __init__(self, clock: Clock, *, one_per_key: bool) -> None:
        super().__init__(clock, one_per_key=one_per_key)
        self._time = clock
        self.loop = self._fetch
        self._line: deque[Delivery] = deque()
        self._line_lock = threading.Lock()
        self._more = threading.Condition(self._line_lock)
        self._held: list[Delivery] = []
        self._since: float | None = None
        self._pause = _FIRST_PAUSE
        self._ended = False
        self._in_thread = False

    # What waits in line

    def put(self, deliveries: Sequence[Delivery]) -> None:
        """Queue each delivery behind all of its key; those to be read, and all behind them, wait in line."""
        with self._line_lock:
            if not self._line and not any(map(_unread, deliveries)):
                super().put(deliveries)
                return
            self._line.extend(deliveries)
            self._more.notify()

    def take(self, limit: int, timeout: float, share: int = 1) -> list[Delivery]:
        """Return deliveries as `Scheduler`; without a thread of its own it reads those in line first."""
        if not self._in_thread and self._line:
            self.advance_all()
        return super().take(limit, timeout, share)

    def void(self, generation: int, *, alone: bool = False) -> None:
        """Forget every waiting delivery of this and earlier generations."""
        with self._line_lock:
            kept = [
                each
                for each in self._line
                if each.source is not None
                or (each.generation != generation if alone else each.generation > generation)
            ]
            self._line.clear()
            self._line.extend(kept)
            super().void(generation, alone=alone)

    def release(self, generation: int) -> list[Delivery]:
        """Hand out nothing of this generation any more, and forget what waits of it."""
        with self._line_lock:
            found = super().release(generation)
            mine = [each for each in self._line if each.generation == generation and each.source is None]
            for each in mine:
                self._line.remove(each)
            return [*found, *mine]

    def close(self) -> list[Delivery]:
        """Stop handing out; returns the waiting deliveries that are not void."""
        with self._line_lock:
            self._ended = True
            self._more.notify_all()
            left = [*super().close(), *(each for each in self._line if not self.is_void(each))]
            self._line.clear()
            return left

    def withdraw(self) -> list[Delivery]:
        """Return all waiting deliveries, in order for each key; none while a key is owned."""
        with self._line_lock:
            if super().owned():
                return []
            left = super().withdraw()
            mine = list(self._line)
            self._line.clear()
            for each in mine:
                self._note_lost(each)
            return [*left, *(each for each in mine if not self.is_void(each))]

    def snapshot(self) -> list[Delivery]:
        """Return all waiting deliveries, in no particular order."""
        with self._line_lock:
            return [*super().snapshot(), *self._line]

    def waiting(self) -> int:
        """Return how many deliveries wait."""
        return super().waiting() + len(self._line)

    def idle_for(self) -> float:
        """Return the seconds since the last delivery arrived; 0 while any waits or runs."""
        return 0.0 if self._line else super().idle_for()

    # Reading

    def _fetch(self) -> None:
        """Read what waits in line, until closed; for a thread of its own."""
        self._in_thread = True
        while True:
            with self._line_lock:
                self._more.wait_for(lambda: self._ended or self._line)
                if self._ended:
                    return
            self._wait_for_room()
            pause = self.advance()
            if pause is not None:
                with self._line_lock:
                    self._more.wait_for(lambda: self._ended, pause)

    def end(self) -> None:
        """End `loop`."""
        with self._line_lock:
            self._ended = True
            self._more.notify_all()

    def advance_all(self) -> None:
        """Read what waits in line, in the caller's thread, until the store does not answer."""
        while self._line and self.advance() is None:
            pass

    def advance(self) -> float | None:
        """Read the first in line and let it pass, with those behind it that are read; returns the pause if the store is away."""
        with self._line_lock:
            if not self._line:
                return None
            first = self._line[0]
        try:
            if _unread(first):
                self.consumer.read(first)
        except ClaimStoreUnavailable as error:
            return self._told_away(error)
        self._tell_back()
        with self._line_lock:
            passing = list[Delivery]()
            # It may have been lost meanwhile.
            while self._line and not _unread(self._line[0]):
                passing.append(self._line.popleft())
            if first.message.claimed is not None:
                self._held.append(first)
            super().put(passing)
        return None

    def _told_away(self, error: ClaimStoreUnavailable) -> float:
        if self._since is None:
            self._since = self._time.monotonic()
        pause = self._pause
        self._pause = min(_LONGEST_PAUSE, 2 * pause)
        self.consumer.store_away(timedelta(seconds=pause), error)
        return pause

    def _tell_back(self) -> None:
        if self._since is None:
            return
        lasted = self._time.monotonic() - self._since
        self._since, self._pause = None, _FIRST_PAUSE
        self.consumer.store_back(timedelta(seconds=lasted))

    def _wait_for_room(self) -> None:
        until = time.monotonic() + _LONGEST_WAIT
        while True:
            self._held = [each for each in self._held if not each.settled and not self.is_void(each)]
            if (
                sum(len(each.message.claimed or b"") for each in self._held) < HELD
                or time.monotonic() > until
            ):
                return
            with self._line_lock:
                self._more.wait_for(lambda: self._ended, _LOOK)
                if self._ended:
                    return


def make_scheduler(clock: Clock, *, one_per_key: bool, fetches: bool) -> Scheduler:
    """Return a scheduler; with `fetches` one for a topic whose large bodies lie in a store."""
    return (ClaimScheduler if fetches else Scheduler)(clock, one_per_key=one_per_key)


def _unread(delivery: Delivery) -> bool:
    return delivery.envelope is None and delivery.refusal is None
