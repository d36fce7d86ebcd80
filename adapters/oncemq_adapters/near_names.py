"""Finds an existing name that differs from a written one by a typing error, on brokers that cannot list theirs, too."""

from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic

_MOST = 250
_LONGEST = 1.0
"""Seconds for all tries together."""

_LETTERS = "aeious"
_SEPARATORS = "._-"


def nearest(name: str, exists: Callable[[str], bool]) -> str | None:
    """Return a name that exists and differs by one typing error; None if none of those that are tried exists.

    Args:
        name: as it was written.
        exists: whether there is something of that name.
    """
    end = monotonic() + _LONGEST
    for other in islice(dict.fromkeys(_typing_errors(name)), _MOST):
        if other and other != name and exists(other):
            return other
        if monotonic() > end:
            return None
    return None


def _typing_errors(name: str) -> Iterator[str]:
    yield from (name.lower(), name.removesuffix("s"), f"{name}s")
    for separator in _SEPARATORS:
        yield from (name.replace(other, separator) for other in _SEPARATORS)
    places = range(len(name))
    yield from (name[:at] + name[at + 1 :] for at in places)
    yield from (name[:at] + name[at + 1 : at + 2] + name[at] + name[at + 2 :] for at in places)
    yield from (name[:at] + name[at] + name[at:] for at in places)
    yield from (name[:at] + letter + name[at:] for at in range(len(name) + 1) for letter in _LETTERS)
