"""Learns the size of units, so that each lasts about as long as intended, and how to divide them for failures."""

from math import sqrt

_TOO_LONG = 0.8
_ROOM_LEFT = 1.25
_FASTEST_GROWTH = 2.0


class BatchSize:
    """The limit of the next unit, learned from previous units: shrinks at once, at most doubles.

    With r = wanted time / real time: cut short, or r < 0.8 → done · √min(1, r); full and r > 1.25 →
    limit · min(2, √r), at least one more; else unchanged. A unit that was not full never raises the limit.

    Args:
        wanted: how long a unit should last, in seconds.
        cap: the largest limit.
        fixed: it is always the largest: the messages wait for a batch of that size.
    """

    __slots__ = ("_cap", "_fixed", "_wanted", "limit")

    def __init__(self, wanted: float, cap: int, *, fixed: bool = False) -> None:
        self._wanted = wanted
        self._cap = cap
        self._fixed = fixed
        self.limit = cap if fixed else 1

    def learn(self, *, taken: int, done: int, seconds: float) -> None:
        """Adjust `limit` after a unit that took `taken` messages and finished `done` of them in `seconds`."""
        if self._fixed:
            return
        ratio = self._wanted / max(seconds, 1e-9)
        if done < taken or ratio < _TOO_LONG:
            self.limit = max(1, int(done * sqrt(min(1.0, ratio))))
        elif taken >= self.limit and ratio > _ROOM_LEFT:
            grown = int(self.limit * min(_FASTEST_GROWTH, sqrt(ratio)))
            self.limit = min(self._cap, max(self.limit + 1, grown))


UNIT_COST = 30.0
"""The cost of a transaction in addition to its items, in items."""

SAVEPOINT_COST = 8.0
"""The same for a savepoint: its two statements, a load and a save."""


GUARD_COST = 4.0
"""The same for a savepoint for one handler: its two statements, and a separate flush of earlier items."""

_RARE = 0.0005
"""The share of failures below which failure costs are ignored."""


class FailureRate:
    """Tracks how often items fail, and how many should be rolled back together so that failing costs least.

    A failure that needs a roll-back costs half of what is rolled back, so frequent failures need small parts:
    n ≈ √(2 · cost of a restart / (cost of an item · failure rate)).

    Args:
        share: the cost of a restart, in items.
        rate: failures for each item so far.
    """

    __slots__ = ("_share", "rate")

    def __init__(self, share: float = UNIT_COST, rate: float = 0.0) -> None:
        self.rate = rate
        self._share = share

    def learn(self, *, items: int, failures: int) -> None:
        """Record a unit of `items`, of which `failures` forced a roll-back."""
        weight = min(1.0, 0.002 * items)
        self.rate += weight * (failures / items - self.rate)

    def cap(self, limit: int) -> int:
        """Return `limit`, or less where failures are frequent: units of about 75 at 1 % and 25 at 10 %."""
        if self.rate < _RARE:
            return limit
        return max(1, min(limit, int(sqrt(2 * self._share / self.rate))))


class SavepointPolicy:
    """Keeps failures after writing cheap for a worker: by a savepoint per handler call, or by units in parts.

    A handler's own savepoint costs whenever a handler sends statements itself, parts always cost: √(2 · cost · rate) of an
    item per item. So where most calls that send statements fail, and most others leave all to the flush, each call has its own.
    """

    __slots__ = ("_late", "_others", "_spoke")

    def __init__(self) -> None:
        self._spoke = FailureRate(SAVEPOINT_COST)
        self._late = FailureRate(SAVEPOINT_COST)
        self._others = FailureRate(SAVEPOINT_COST)

    def learn(self, *, items: int, spoke: int, late: int, others: int) -> None:
        """Record a unit of `items`.

        Args:
            items: the number of items.
            spoke: calls of handlers that sent statements themselves.
            late: the number of these that failed.
            others: other failures that forced a roll-back.
        """
        self._spoke.learn(items=items, failures=spoke)
        self._late.learn(items=items, failures=late)
        self._others.learn(items=items, failures=others)

    @property
    def guarded(self) -> bool:
        """Whether handlers get their own savepoints."""
        late = self._late.rate
        return late >= _RARE and GUARD_COST * self._spoke.rate < sqrt(2 * SAVEPOINT_COST * late)

    def savepoint_every(self, size: int) -> int | None:
        """Return how many items of a unit of `size` are rolled back together; None = all."""
        every = self._others.cap(size) if self.guarded else self._all().cap(size)
        return every if every < size else None

    def _all(self) -> FailureRate:
        return FailureRate(SAVEPOINT_COST, self._late.rate + self._others.rate)


_OFTEN_ALONE = 0.1
_SELDOM_ALONE = 0.02


class IsolationRate:
    """Tracks how often messages had to run alone; if often, they do so at once.

    Args:
        always: the consumer requires it.
    """

    __slots__ = ("_rate", "always", "at_once")

    def __init__(self, *, always: bool = False) -> None:
        self.always = always
        self.at_once = always
        self._rate = 0.0

    def learn(self, *, items: int, needed: int) -> None:
        """Record `items` that ran, of which `needed` had to be alone."""
        self._rate += min(1.0, 0.02 * items) * (needed / items - self._rate)
        self.at_once = self.always or self._rate >= (_SELDOM_ALONE if self.at_once else _OFTEN_ALONE)
