"""Decides which of several hosts is tried next, and for how long: one that is silent never keeps another from its turn."""

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from threading import Lock
from typing import Generic, NamedTuple, TypeVar

FIRST_LOOK = 1.0
"""Seconds for a host's answer while there are others to try; a busy one gets its full time in the second round."""

REMEMBERED = 30.0
"""Seconds for which a host that failed comes after the others."""

Name = TypeVar("Name", bound=Hashable)


class Try(NamedTuple, Generic[Name]):
    """One try to connect.

    Args:
        host: to which.
        patience: seconds for its answer at most; None = as long as is configured.
    """

    host: Name
    patience: float | None


class HostOrder(Generic[Name]):
    """Shared by all connections to one broker; safe for all threads.

    Args:
        hosts: in the order of the configuration.
        now: seconds of a clock that never goes back.
    """

    def __init__(self, hosts: Sequence[Name], now: Callable[[], float] = time.monotonic) -> None:
        self._hosts = hosts
        self._now = now
        self._lock = Lock()
        self._failed: dict[Name, float] = {}

    def tries(self) -> Iterator[Try[Name]]:
        """Yield attempts: all hosts for a moment each, then all for as long as is configured."""
        for patience in (FIRST_LOOK, None) if len(self._hosts) > 1 else (None,):
            for host in self._order():
                yield Try(host, patience)

    def failed(self, host: Name) -> None:
        """Note that a host could not be used."""
        with self._lock:
            self._failed[host] = self._now()

    def succeeded(self, host: Name) -> None:
        """Note that a host can be used."""
        with self._lock:
            self._failed.pop(host, None)

    def _order(self) -> Sequence[Name]:
        with self._lock:
            since = self._now() - REMEMBERED
            recent = {host for host, at in self._failed.items() if at > since}
        return sorted(self._hosts, key=lambda host: host in recent)
