"""Shares the partitions of a group out among its members, so that all who know the same members agree."""

import hashlib
from collections.abc import Collection, Sequence

LONGEST_INTERVAL = 60.0
"""Seconds; a member that announces itself more seldom, or a forged announcement, is not believed for longer."""

EXPIRY = 3.5
"""Of a member's own interval: after that time without an announcement it counts as gone."""


def shares(members: Collection[str], partitions: int) -> dict[str, list[int]]:
    """Return the partitions of each member: as even as possible, and few move when a member comes or goes.

    Each partition has its own order of the members, and takes the first that has room.
    """
    even, more = divmod(partitions, len(members))
    found: dict[str, list[int]] = {member: [] for member in members}
    for number in range(partitions):
        for member in _order(members, number):
            size = len(found[member])
            if size < even or (size == even and more > 0):
                more -= size == even
                found[member].append(number)
                break
    return found


def _order(members: Collection[str], number: int) -> Sequence[str]:
    return sorted(members, key=lambda member: hashlib.sha256(f"{number} {member}".encode()).digest())


class Members:
    """The members of a group as one of them knows them; not thread-safe.

    Args:
        me: this member's name.
        interval: seconds between two announcements of a member.
    """

    def __init__(self, me: str, interval: float) -> None:
        self.me = me
        self._interval = interval
        self._until: dict[str, float] = {}
        self.heard_myself = False

    def heard(self, member: str, *, here: bool, every: float, now: float) -> bool:
        """Note an announcement; returns whether the members have changed by it."""
        if member == self.me:
            self.heard_myself = self.heard_myself or here
            return False
        known = self._until.pop(member, None) is not None
        if here:
            # A NaN is neither, so it counts as the longest.
            believed = min(LONGEST_INTERVAL, every)
            self._until[member] = now + EXPIRY * max(believed, self._interval)
        return known != here

    def alive(self, now: float) -> list[str]:
        """Return who consumes besides this member."""
        self._until = {member: until for member, until in self._until.items() if until > now}
        return sorted(self._until)

    def forget(self) -> None:
        """Forget all; after a loss of the connection they are heard again."""
        self._until.clear()
        self.heard_myself = False
