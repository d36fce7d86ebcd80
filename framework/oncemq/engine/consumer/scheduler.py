"""Schedules deliveries: arrival order for each key, and one owner of a key at a time.

All deliveries wait in one queue; only a key that is owned by a worker or asleep gets its own queue, into which
takers move deliveries that they pass. So all deliveries in a key's own queue precede those in the common queue.
"""

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from oncemq.common.clock import Clock
from oncemq.engine.consumer.batch_fill import BatchFill
from oncemq.engine.consumer.value_limit import ValueLimit
from oncemq.engine.rates.rate_limit import Limit
from oncemq.message.envelope import Delivery

_NEVER = -1
_REMEMBERED = 1000
"""Generations that were lost alone; none of the older ones are left here, and if so, the broker would report it."""


class Scheduler:
    """Deliveries in, takes out; safe for any number of putting and taking threads.

    Args:
        clock: where time comes from.
        one_per_key: a take holds at most one delivery of a key.

    Attributes:
        rate_limit: how many deliveries a second may be taken; None = as many as there are.
        values: how many deliveries of one value may be taken at once; None = as many as there are.
        fill: when those that wait are enough for a take, and which of them share one; None = whatever there is.
        loop: what a thread of its own does until `end`; None = nothing.
    """

    def __init__(self, clock: Clock, *, one_per_key: bool = False) -> None:
        self._clock = clock
        self._one_per_key = one_per_key
        self.rate_limit: Limit | None = None
        self.values: ValueLimit | None = None
        self.fill: BatchFill | None = None
        self._in_work = 0
        self._ready: deque[Delivery] = deque()
        self._waiting: dict[str, deque[Delivery]] = {}
        self._asleep: list[tuple[float, str]] = []
        self._until: dict[str, float] = {}
        self._woken: set[str] = set()
        # Acquired directly if no thread waits: a Condition's own __enter__ is Python code, for every message.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self.loop: Callable[[], None] | None = None
        self._idle_takers = 0
        self._void_until = _NEVER
        self._void_alone: dict[int, list[Delivery] | None] = {}
        self._closed = False
        self._last_put = clock.monotonic()

    def hurry(self, seconds: float) -> None:
        """Let no message wait longer than this for others of its batch."""
        with self._lock:
            if self.fill is not None:
                self.fill.hurry(seconds)

    def end(self) -> None:
        """End `loop`, if there is one."""

    def put(self, deliveries: Sequence[Delivery]) -> None:
        """Queue each delivery behind all of its key."""
        # A call without deliveries is not an arrival: otherwise the consumer would never be idle.
        if not deliveries:
            return
        with self._lock:
            self._last_put = self._clock.monotonic()
            # Never directly into its key's own queue: earlier ones may still be in the common queue.
            self._ready.extend(deliveries)
            if self.fill is not None:
                self.fill.arrived(deliveries, self._last_put)
            if self._idle_takers:
                waiting = self._waiting
                self._changed.notify(sum(delivery.key not in waiting for delivery in deliveries))

    def take(self, limit: int, timeout: float, share: int = 1) -> list[Delivery]:
        """Return up to `limit` deliveries, whose keys the caller owns until `done`; empty after `timeout`.

        Args:
            limit: the most deliveries.
            timeout: seconds to wait for the first one; it never waits for more. With 0 it asks nothing over a network.
            share: take at most this part (1/share) of the ready deliveries, so that other workers get some.
        """
        # Not without a time-out: so it is called on event loops, where nothing may block. Only for messages that wait here:
        # what an idle process took would be missing in the others.
        asked = self.rate_limit
        if asked is not None and timeout > 0 and self._ready:
            asked.prepare()
        with self._lock:
            self._wake_sleepers()
            if self.fill is not None:
                return self._take_batch(limit, timeout, share, self.fill)
            if not self._ready and not self._closed:
                self._wait_for_some(timeout)
            if self._closed:
                return []
            if share > 1:
                limit = max(1, min(limit, -(-len(self._ready) // share)))
            rate_limit = self.rate_limit
            if rate_limit is None:
                return self._take_ready(limit)
            return self._take_limited(limit, timeout, rate_limit)

    def _take_limited(self, limit: int, timeout: float, rate_limit: Limit) -> list[Delivery]:
        if rate_limit.allowance() < 1:
            self._changed.wait_for(lambda: self._closed, min(timeout, rate_limit.wait()))
        allowed = rate_limit.allowance()
        if self._closed or allowed < 1:
            return []
        taken = self._take_ready(min(limit, allowed))
        rate_limit.spend(len(taken))
        return taken

    def _take_batch(self, limit: int, timeout: float, share: int, fill: BatchFill) -> list[Delivery]:
        """Return a batch when one is due; what waits for others to fill one stays in the queue, and nothing owns its keys."""
        until = time.monotonic() + timeout
        while not self._closed:
            if share > 1 and not fill.within:
                limit = max(1, min(limit, -(-len(self._ready) // share)))
            pause = fill.wait(
                self._ready,
                self._waiting,
                limit=limit,
                now=self._clock.monotonic(),
                in_work=self._in_work,
            )
            allowed = limit
            if pause <= 0 and self.rate_limit is not None:
                allowed = min(limit, self.rate_limit.allowance())
                wanted = min(limit, fill.size, self.rate_limit.most)
                # Else one message would be taken as soon as one may be, and a batch would have one.
                pause = 0.0 if allowed >= wanted else self.rate_limit.wait(wanted)
            if pause <= 0:
                return self._take_chosen(allowed, fill)
            left = until - time.monotonic()
            if left <= 0:
                break
            self._wait_for_some(min(pause, left))
        return []

    def _take_chosen(self, limit: int, fill: BatchFill) -> list[Delivery]:
        if fill.groups:
            chosen = fill.select(self._ready)
            taken = self._take_ready(limit, chosen)
            self._ready.extendleft(reversed(chosen))
        else:
            taken = self._take_ready(limit)
            fill.changed()
        self._in_work += len(taken)
        if self.rate_limit is not None:
            self.rate_limit.spend(len(taken))
        return taken

    def _wait_for_some(self, timeout: float) -> None:
        until_wake = self._asleep[0][0] - self._clock.monotonic() if self._asleep else timeout
        self._idle_takers += 1
        try:
            self._changed.wait(max(0.0, min(timeout, until_wake)))
        finally:
            self._idle_takers -= 1
        self._wake_sleepers()

    def _take_ready(self, limit: int, chosen: deque[Delivery] | None = None) -> list[Delivery]:
        taken: list[Delivery] = []
        mine: set[str] = set()
        waiting, void, one_per_key = self._waiting, self._void_until, self._one_per_key
        ready = self._ready if chosen is None else chosen
        alone, values = self._void_alone, self.values
        while ready and len(taken) < limit:
            delivery = ready.popleft()
            lost = delivery.generation <= void or (alone and delivery.generation in alone)
            expired = delivery.expires_at is not None and delivery.expires_at <= self._clock.monotonic()
            if expired or (lost and delivery.source is None):
                if (released := alone.get(delivery.generation)) is not None:
                    released.append(delivery)
                if values is not None:
                    # It may have waited for room that was then given to it.
                    self._give_room([values.value_of(delivery)])
                continue
            key = delivery.key
            if key in mine:
                # One that had no room waits there: nothing of its key overtakes it.
                if one_per_key or (values is not None and (waiting[key] or not values.enter(delivery))):
                    waiting[key].append(delivery)
                    continue
            elif key in waiting:
                waiting[key].append(delivery)
                continue
            elif values is not None and not values.enter(delivery):
                # With its key, as one that sleeps: `done` of another message of its value wakes it.
                waiting[key] = deque((delivery,))
                values.hold(delivery)
                continue
            else:
                waiting[key] = deque()
                mine.add(key)
            taken.append(delivery)
        return taken

    def done(
        self,
        taken: Iterable[Delivery],
        back: Sequence[Delivery] = (),
        sleep: Mapping[str, float] | None = None,
    ) -> None:
        """Release the keys of `taken`.

        Args:
            taken: the result of `take`.
            back: those that return to the head of their key's queue, in order; of other keys, to the end of the queue.
            sleep: keys that must not run again, with the seconds.
        """
        with self._lock:
            now = self._clock.monotonic()
            left: list[str] = []
            if self.values is not None:
                taken = list(taken)
                left = self.values.leave(taken)
            if self.fill is not None:
                taken = list(taken)
                self._in_work -= len(taken)
                self.fill.changed()
            keys = {delivery.key for delivery in taken}
            for delivery in reversed(back):
                if delivery.key in keys:
                    self._waiting[delivery.key].appendleft(delivery)
            self._ready.extend(delivery for delivery in back if delivery.key not in keys)
            for key in keys:
                if sleep and key in sleep and key not in self._woken:
                    self._until[key] = now + sleep[key]
                    heapq.heappush(self._asleep, (self._until[key], key))
                else:
                    self._free(key)
                self._woken.discard(key)
            # Before what else waits of the keys that had the room: else one key could keep it.
            if left:
                self._give_room(left)
            if self._idle_takers:
                self._changed.notify_all()

    def wake(self, key: str) -> None:
        """Wake a key that sleeps, or is about to: the message it waited for has arrived."""
        with self._lock:
            if self._until.pop(key, None) is not None:
                self._free(key)
                if self._idle_takers:
                    self._changed.notify()
            elif key in self._waiting:
                self._woken.add(key)

    def _give_room(self, values: Sequence[str]) -> None:
        """Wake for each value a key that waits for room, the longest waiting one first; one that has nothing left is passed over."""
        limit, freed = self.values, []
        for value in values:
            while limit is not None and (key := limit.next_key(value)) is not None:
                if own := self._waiting.pop(key, None):
                    freed.append(own)
                    break
        for own in reversed(freed):
            self._ready.extendleft(reversed(own))
        if self.fill is not None:
            self.fill.changed()

    def _free(self, key: str) -> None:
        own = self._waiting.pop(key, None)
        if own:
            self._ready.extendleft(reversed(own))
            if self.fill is not None:
                self.fill.changed()

    def _wake_sleepers(self) -> None:
        now = self._clock.monotonic()
        while self._asleep and self._asleep[0][0] <= now:
            until, key = heapq.heappop(self._asleep)
            if self._until.get(key) == until:
                del self._until[key]
                self._free(key)

    def next_wake(self) -> float | None:
        """Return the monotonic seconds at which the next sleeping key wakes; None if none sleeps."""
        with self._lock:
            return min(self._until.values(), default=None)

    def void(self, generation: int, *, alone: bool = False) -> None:
        """Forget every waiting delivery of this and earlier generations: the broker redelivers them.

        Args:
            generation: the lost one.
            alone: earlier generations are not lost.
        """
        with self._lock:
            if alone:
                self._void_alone[generation] = None
                self._forget_oldest()
            else:
                self._void_until = max(self._void_until, generation)
                self._void_alone = {
                    lost: left for lost, left in self._void_alone.items() if lost > self._void_until
                }

    def release(self, generation: int) -> list[Delivery]:
        """Hand out nothing of this generation any more, and forget what waits of it.

        Returns what waited, in order for each key; a worker may still return others, which the next call tells.
        """
        with self._lock:
            found = self._void_alone.get(generation) or []
            for queue in (*self._waiting.values(), self._ready):
                mine = [each for each in queue if each.generation == generation and each.source is None]
                if mine:
                    found += mine
                    others = [
                        each for each in queue if each.generation != generation or each.source is not None
                    ]
                    queue.clear()
                    queue.extend(others)
            self._void_alone[generation] = []
            self._forget_oldest()
            return found

    def _forget_oldest(self) -> None:
        if len(self._void_alone) > _REMEMBERED:
            del self._void_alone[next(iter(self._void_alone))]

    def is_void(self, delivery: Delivery) -> bool:
        """Return whether the broker has lost the delivery's generation; other sources lose nothing."""
        lost = delivery.generation <= self._void_until or delivery.generation in self._void_alone
        return lost and delivery.source is None

    def close(self) -> list[Delivery]:
        """Stop handing out; returns the waiting deliveries that are not void, in order for each key."""
        with self._lock:
            self._closed = True
            left = [*(delivery for own in self._waiting.values() for delivery in own), *self._ready]
            self._ready.clear()
            for own in self._waiting.values():
                own.clear()
            self._changed.notify_all()
            return [delivery for delivery in left if not self.is_void(delivery)]

    def withdraw(self) -> list[Delivery]:
        """Return all waiting deliveries, which do not wait here any more, in order for each key; none while a key is owned.

        A worker that owns a key may still return deliveries, which come before the waiting ones.
        """
        with self._lock:
            if self._owned():
                return []
            left = [*(delivery for own in self._waiting.values() for delivery in own), *self._ready]
            self._ready.clear()
            self._waiting.clear()
            self._until.clear()
            self._asleep.clear()
            if self.values is not None:
                self.values.clear()
            for delivery in left:
                self._note_lost(delivery)
            return [delivery for delivery in left if not self.is_void(delivery)]

    def owned(self) -> bool:
        """Return whether a worker owns any key."""
        with self._lock:
            return self._owned()

    def _owned(self) -> bool:
        held = self.values.held if self.values is not None else ()
        return any(key not in self._until and key not in held for key in self._waiting)

    def _note_lost(self, delivery: Delivery) -> None:
        """Note for `release` a delivery of a generation that it asked for."""
        if (asked := self._void_alone.get(delivery.generation)) is not None and delivery.source is None:
            asked.append(delivery)

    def snapshot(self) -> list[Delivery]:
        """Return all waiting deliveries, in no particular order."""
        with self._lock:
            return [*self._ready, *(delivery for own in self._waiting.values() for delivery in own)]

    def waiting(self) -> int:
        """Return how many deliveries wait, sleeping ones included."""
        with self._lock:
            return len(self._ready) + sum(map(len, self._waiting.values()))

    def idle_for(self) -> float:
        """Return the seconds since the last delivery arrived; 0 while any waits or runs."""
        with self._lock:
            if self._ready or self._waiting:
                return 0.0
            return self._clock.monotonic() - self._last_put
