"""Ends the connections to a database that no longer answers, so that threads that wait for it continue with an error.

Processes that a handler forks have none of them: rows that a killed process had locked would stay locked with its child.

Drivers wait without limit for an answer: a statement of a handler may take hours. Keep-alive probes notice a host that
vanished, but not a server that is frozen, or a proxy in front of one: there the kernel still answers.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from sqlalchemy import Engine, QueuePool, event

from oncemq.common.forked import withhold


class OpenConnections:
    """Knows the driver's connections of an engine.

    Args:
        engine: on PostgreSQL, MariaDB or MySQL.
    """

    def __init__(self, engine: Engine) -> None:
        self._known: WeakValueDictionary[int, Any] = WeakValueDictionary()
        event.listen(engine, "connect", self._opened)
        # A connection that is in the pool already is seen when it is used next; else a unit pays nothing.
        if isinstance(engine.pool, QueuePool) and engine.pool.checkedin() + engine.pool.checkedout():
            event.listen(engine, "checkout", self._checked_out)
        withhold(self, OpenConnections._descriptors)

    def _opened(self, connection: Any, record: Any) -> None:  # noqa: ARG002 - the event's signature
        self._known[id(connection)] = connection

    def _checked_out(self, connection: Any, record: Any, proxy: Any) -> None:  # noqa: ARG002 - the event's signature
        self._known[id(connection)] = connection

    def _descriptors(self) -> Iterator[int]:
        for known in self._known.valuerefs():
            connection = known()
            if connection is not None:
                with suppress(Exception):
                    yield _descriptor_of(connection)

    def end(self) -> None:
        """End every connection, from any thread; a thread that reads from one gets the driver's error for a lost connection."""
        for known in self._known.valuerefs():
            connection = known()
            if connection is not None:
                with suppress(Exception):
                    _shut_down(connection)


def _descriptor_of(connection: Any) -> int:
    sock = getattr(connection, "_sock", None)  # PyMySQL
    found: int = connection.fileno() if sock is None else sock.fileno()
    return found


def _shut_down(connection: Any) -> None:
    # A duplicate, since closing the driver's own descriptor under a thread that reads from it would free its number.
    with socket.socket(fileno=os.dup(_descriptor_of(connection))) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)
