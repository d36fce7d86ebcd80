"""How many messages a unit takes, so that it lasts about as long as it should."""

from math import sqrt

_TOO_LONG = 0.8
_ROOM_LEFT = 1.25
_FASTEST_GROWTH = 2.0


class BatchSize:
    """The limit of the next unit, learned from the last ones: falls at once, grows by at most twice.

    With r = wanted time / real time: cut short, or r < 0.8 → done · √min(1, r); full and r > 1.25 →
    limit · min(2, √r), at least one more; else as it was. A unit that was not full never grows the limit.

    Args:
        wanted: how long a unit should last, in seconds.
        cap: the largest limit.
    """

    __slots__ = ("_cap", "_wanted", "limit")

    def __init__(self, wanted: float, cap: int) -> None:
        self._wanted = wanted
        self._cap = cap
        self.limit = 1

    def learn(self, *, taken: int, done: int, seconds: float) -> None:
        """Adjust `limit` after a unit that took `taken` messages and finished `done` of them in `seconds`."""
        ratio = self._wanted / max(seconds, 1e-9)
        if done < taken or ratio < _TOO_LONG:
            self.limit = max(1, int(done * sqrt(min(1.0, ratio))))
        elif taken >= self.limit and ratio > _ROOM_LEFT:
            grown = int(self.limit * min(_FASTEST_GROWTH, sqrt(ratio)))
            self.limit = min(self._cap, max(self.limit + 1, grown))


UNIT_COST = 30.0
"""What a transaction costs more than its items, in items."""

SAVEPOINT_COST = 8.0
"""The same for a savepoint: its two statements, a load and a save."""


class FailureRate:
    """How often items fail, and how many should be undone together so that failing costs least.

    A failure that needs a roll-back costs half of what is rolled back, so frequent failures want it small:
    n ≈ √(2 · cost of beginning anew / (cost of an item · failure rate)).

    Args:
        share: what beginning anew costs, in items.
    """

    __slots__ = ("_rate", "_share")

    def __init__(self, share: float = UNIT_COST) -> None:
        self._rate = 0.0
        self._share = share

    def learn(self, *, items: int, failures: int) -> None:
        """Take into account a unit of `items`, of which `failures` forced a roll-back."""
        weight = min(1.0, 0.002 * items)
        self._rate += weight * (failures / items - self._rate)

    def cap(self, limit: int) -> int:
        """Return `limit`, or less where failures are frequent: units of about 75 at 1 % and 25 at 10 %."""
        if self._rate < 0.0005:
            return limit
        return max(1, min(limit, int(sqrt(2 * self._share / self._rate))))
