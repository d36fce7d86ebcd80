"""Which messages of one round of sends have been answered; told by the connections' threads."""

import time
from collections.abc import Sequence
from threading import Event, Lock

from oncemq.errors import BrokerError
from oncemq_adapters.rocketmq.remoting.protocol.connection import Connection


class Tally:
    """Counts down until every message has its answer.

    Args:
        count: how many messages there are.
        errors: where to write what is wrong with each.
    """

    def __init__(self, count: int, errors: list[BrokerError | None]) -> None:
        self._left = count
        self._errors = errors
        self._lock = Lock()
        self._waiting: dict[Connection, int] = {}
        self._complete = Event()
        if not count:
            self._complete.set()

    def begin(self, connection: Connection) -> None:
        """Note that something waits for this connection."""
        with self._lock:
            self._waiting[connection] = self._waiting.get(connection, 0) + 1

    def end(self, connection: Connection) -> None:
        """Note that it waits no more."""
        with self._lock:
            self._waiting[connection] -= 1

    def answered(self, indices: Sequence[int], error: BrokerError | None) -> None:
        """Write down the answer of these messages."""
        with self._lock:
            for at in indices:
                self._errors[at] = error
            self._left -= len(indices)
            if self._left <= 0:
                self._complete.set()

    def waits_for(self, connection: Connection) -> bool:
        """Return whether anything waits for this connection."""
        return self._waiting.get(connection, 0) > 0

    def wait(self, deadline: float) -> bool:
        """Wait until all are answered; returns whether that was in time."""
        return self._complete.wait(max(0.0, deadline - time.monotonic()))
