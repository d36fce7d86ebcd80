"""One queue while it is ours: messages in flight, the settled ones of them, and the end of the finished prefix."""

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from threading import Lock
from time import monotonic
from types import MappingProxyType
from typing import Any, NamedTuple

from oncemq_adapters.rocketmq_client.protocol import StoredMessage

QueueKey = tuple[str, str, int]
"""Topic, broker and number."""

NOTHING: Mapping[Any, int] = MappingProxyType({})


@dataclass(slots=True)
class Work:
    """What was done in a queue since it is ours.

    Args:
        pulled: messages.
        pulls: that brought some.
        pulling: seconds that these pulls took.
        settled: messages.
        moved: of these, those that failed: to the group's retries or dead letters.
        settled_at: when the last one was, monotonic; 0.0 = never.
    """

    pulled: int = 0
    pulls: int = 0
    pulling: float = 0.0
    settled: int = 0
    moved: int = 0
    settled_at: float = 0.0


class Cached(NamedTuple):
    """Unsettled messages of a queue.

    Args:
        first: the lowest offset; 0 if there is none.
        last: the highest.
        messages: how many.
        size: bytes of their bodies.
    """

    first: int
    last: int
    messages: int
    size: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a queue was when it was lost, for when it comes back to the same member.

    Args:
        committed: the offset that the broker was last known to have.
        prefix: everything before this offset is settled.
        settled: what is settled behind it.
    """

    committed: int
    prefix: int
    settled: frozenset[int]


class Commit:
    """Whether a commit is under way: brokers may follow two of one queue in the wrong order."""

    def __init__(self) -> None:
        self._free = Lock()

    def begin(self, timeout: float = 0.0) -> bool:
        """Return whether it is our turn; `end` must follow."""
        return self._free.acquire(timeout=timeout) if timeout else self._free.acquire(blocking=False)

    def end(self) -> None:
        """Let the next one begin."""
        self._free.release()


class ProcessQueue:
    """Every offset is settled at most once; safe for any number of settling threads.

    Args:
        key: which queue.
        generation: which assignment this is; deliveries carry it.

    Attributes:
        next: where the next pull begins; None until the queue was taken over.
        committed: the last offset that the broker has confirmed.
        commit: one at a time.
        lost: nothing of it may be settled or committed any more.
        draining: it belongs to another member; what is out may still be settled for a while.
        out: how many deliveries are out and unsettled, by the window that delivered them.
        unpacked: how many bytes of these were unpacked, by the same.
        work: what was done in it.
        begun: when each delivery was handed over, by its offset; for the message trace.
    """

    def __init__(self, key: QueueKey, generation: int) -> None:
        self.key = key
        self.topic, self.broker, self.number = key
        self.generation = generation
        self.next: int | None = None
        self.committed: int | None = None
        self.lost = False
        self.draining = False
        self.pulling = False
        self.pulled_at = monotonic()
        self.failures = 0
        self.settled_since_commit = 0
        self.commit = Commit()
        self.out: Counter[Any] = Counter()
        self.unpacked: Counter[Any] = Counter()
        self.work = Work()
        self.begun: dict[int, int] = {}
        self._lock = Lock()
        self._skip: Collection[int] = ()
        self._order: deque[int] = deque()
        self._flight: dict[int, StoredMessage] = {}
        self._claimed: set[int] = set()
        self._left: dict[Any, int] = {}
        self._fetching: set[Any] = set()

    def __repr__(self) -> str:
        return f"{self.topic}@{self.broker}/{self.number}"

    @property
    def idle(self) -> bool:
        """Whether nothing of it is in flight."""
        return not self._flight

    def begin(self, offset: int, committed: int | None, skip: Collection[int]) -> None:
        """Start at an offset; the offsets in `skip` were settled before."""
        with self._lock:
            self.next, self.committed, self._skip = offset, committed, skip

    def ask(self) -> int | None:
        """Return where to pull; None if a pull is under way or nothing shall be pulled."""
        with self._lock:
            if self.pulling or self.lost or self.draining or self.next is None:
                return None
            self.pulling, self.pulled_at = True, monotonic()
            return self.next

    def failed(self) -> None:
        """Note that a pull brought nothing."""
        with self._lock:
            self.pulling = False
            self.failures += 1

    def advance(
        self, offset: int, messages: Sequence[StoredMessage], left: Mapping[Any, int] = NOTHING
    ) -> Sequence[StoredMessage]:
        """Add pulled messages; returns those to deliver.

        Until then no other pull begins: it would ask for the same once more.

        Args:
            offset: where to go on.
            messages: what was pulled, without what stays on the broker.
            left: from which offset on messages stay there, by their window: all of its messages, until they are fetched.
        """
        with self._lock:
            self.pulling, self.failures = False, 0
            if self.lost or self.draining:
                return ()
            fresh = (
                [message for message in messages if message.offset not in self._skip]
                if self._skip
                else messages
            )
            if messages:
                self.work.pulled += len(messages)
                self.work.pulls += 1
                self.work.pulling += monotonic() - self.pulled_at
            self._flight.update([(message.offset, message) for message in fresh])
            self._order.extend([message.offset for message in fresh])
            for owner, first in left.items():
                self._left.setdefault(owner, first)
            self.next = offset
            if self._skip and not self._left and offset > max(self._skip):
                self._skip = ()
            return fresh

    def has_left(self, owner: Any) -> bool:
        """Return whether messages for this owner were left on the broker."""
        return owner in self._left

    def ask_left(self, owner: Any, before: float = inf) -> int | None:
        """Return from where on to fetch what was left for an owner; None if that is being done, or must not be.

        Args:
            owner: for whom.
            before: nothing is to be fetched that was left at this offset or behind it.
        """
        with self._lock:
            if self.lost or self.draining or owner in self._fetching or self._left.get(owner, inf) >= before:
                return None
            self._fetching.add(owner)
            return self._left[owner]

    def fetched(self, owner: Any, offset: int, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """Add messages fetched for an owner up to an offset; returns those to deliver."""
        with self._lock:
            self._fetching.discard(owner)
            if self.lost or self.draining:
                return ()
            end = self.next or 0
            # Messages behind the queue's own pulls come with those.
            fresh = [
                message for message in messages if message.offset < end and message.offset not in self._skip
            ]
            self._flight.update((message.offset, message) for message in fresh)
            self._order = deque(sorted([*self._order, *(message.offset for message in fresh)]))
            if offset < end:
                self._left[owner] = offset
            else:
                self._left.pop(owner, None)
            self._trim()
            return fresh

    def fetch_failed(self, owner: Any) -> None:
        """Note that nothing was fetched for an owner."""
        with self._lock:
            self._fetching.discard(owner)
            self.failures += 1

    def claim(self, offset: int) -> bool:
        """Reserve an offset for settling; False if it is already reserved."""
        with self._lock:
            if offset not in self._flight or offset in self._claimed:
                return False
            self._claimed.add(offset)
            return True

    def claim_all(self, offsets: Sequence[int]) -> Collection[int]:
        """Reserve offsets for settling; returns the positions of those already reserved."""
        taken: set[int] = set()
        flight, claimed = self._flight, self._claimed
        with self._lock:
            for at, offset in enumerate(offsets):
                if offset in flight and offset not in claimed:
                    claimed.add(offset)
                else:
                    taken.add(at)
        return taken

    def unclaim(self, offset: int) -> None:
        """Make a claimed offset unsettled again."""
        with self._lock:
            self._claimed.discard(offset)

    def finish(self, offsets: Sequence[int]) -> bool:
        """Settle claimed offsets; False, and nothing settled, if the queue was lost meanwhile."""
        with self._lock:
            if self.lost:
                return False
            self._claimed.difference_update(offsets)
            for offset in offsets:
                self._flight.pop(offset, None)
            self.settled_since_commit += len(offsets)
            self.work.settled += len(offsets)
            self.work.settled_at = monotonic()
            self._trim()
            return True

    def cached(self) -> Cached:
        """Return what is unsettled here."""
        with self._lock:
            size = sum(len(message.body) for message in self._flight.values())
            return Cached(min(self._flight, default=0), max(self._flight, default=0), len(self._flight), size)

    def prefix(self) -> int | None:
        """Return the offset up to which everything is settled; None if the queue was never taken over."""
        with self._lock:
            return None if self.next is None else self._prefix()

    def lose(self) -> bool:
        """Let nothing be settled or committed any more; returns whether that is new."""
        with self._lock:
            fresh, self.lost = not self.lost, True
            return fresh

    def progress(self) -> Progress | None:
        """Return how far it is."""
        with self._lock:
            if self.next is None or self.committed is None:
                return None
            settled = frozenset(offset for offset in self._order if offset not in self._flight)
            return Progress(self.committed, self._prefix(), settled | frozenset(self._skip))

    def end_of_settled(self) -> int:
        """Return the offset behind the last settled message; 0 if none is, but for the finished prefix."""
        with self._lock:
            return max((offset + 1 for offset in self._order if offset not in self._flight), default=0)

    def before_settled(self) -> Sequence[StoredMessage]:
        """Return unsettled messages in front of settled ones."""
        end = self.end_of_settled()
        with self._lock:
            return [self._flight[offset] for offset in self._order if offset in self._flight and offset < end]

    def _trim(self) -> None:
        """Forget the settled ones up to the first unsettled one, be it here or left on the broker."""
        order, flight, left = self._order, self._flight, self._left
        first = min(left.values()) if left else None
        while order and order[0] not in flight and (first is None or order[0] < first):
            order.popleft()

    def _prefix(self) -> int:
        return min([self._order[0] if self._order else self.next or 0, *self._left.values()])
