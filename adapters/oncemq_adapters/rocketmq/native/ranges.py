"""Which offsets of a queue have been read: a few stretches, since reading goes on where it ended."""

from bisect import bisect_right

_MOST = 64


class Ranges:
    """A set of offsets that is kept as stretches; beyond a number of them the lowest are forgotten.

    Not for several threads at once.
    """

    def __init__(self) -> None:
        self._stretches: list[range] = []

    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and any(offset in one for one in self._stretches)

    def add(self, first: int, last: int) -> None:
        """Add all from `first` to `last`, both included."""
        apart = [one for one in self._stretches if one.start > last + 1 or one.stop < first]
        touching = [one for one in self._stretches if one not in apart]
        start = min([first, *(one.start for one in touching)])
        joined = range(start, max([last + 1, *(one.stop for one in touching)]))
        apart.insert(bisect_right(apart, joined.start, key=lambda one: one.start), joined)
        self._stretches = apart[-_MOST:]
