"""Routes to a single server, or to the server that sentinels name, through redis-py's connection pool."""

import os
from collections import deque
from collections.abc import Sequence
from typing import Any

import redis.connection
from redis.exceptions import RedisError

from oncemq.redis.routes import Routes

HAS_PROTOCOLS = hasattr(redis.connection, "AbstractConnection")
"""Whether this is redis-py 5 or newer, not the 3.5 used with redis-py-cluster."""


class ServerRoutes(Routes):
    """Routes of a `redis.Redis`.

    Args:
        client: its connections are borrowed.
        ours: the client is closed with these routes.
    """

    def __init__(self, client: Any, *, ours: bool) -> None:
        self._client = client
        self._pool = client.connection_pool
        self._ours = ours
        known = self._pool.connection_kwargs
        self._masters = (f"{known['host']}:{known['port']}" if "host" in known else "server",)

    def place(self, slot: int) -> str:  # noqa: ARG002
        """Return the only place."""
        return self._masters[0]

    def masters(self) -> Sequence[str]:
        """Return the only place."""
        return self._masters

    def borrow(self, place: str) -> Any:  # noqa: ARG002
        """Return a connection that is connected and has no unread answer."""
        return borrowed(self._pool)

    def give_back(self, place: str, connection: Any) -> None:  # noqa: ARG002
        """Return it to the pool."""
        self._pool.release(connection)

    def leave(self, place: str) -> None:  # noqa: ARG002
        """Close idle connections; a new one resolves the name, or asks the sentinels, again."""
        self._pool.disconnect(inuse_connections=False)

    def own(self, place: str) -> Any:  # noqa: ARG002
        """Return a connection outside of the pool."""
        return unshared(self._pool)

    def refresh(self) -> None:
        """Do nothing: there is one server, and each new connection asks the sentinels."""

    def close(self) -> None:
        """Disconnect, unless the client is the user's."""
        if self._ours:
            self._pool.disconnect()


class KeptServerRoutes(ServerRoutes):
    """Routes of a `redis.Redis` of ours to one fixed server, which keep idle connections themselves.

    The pool takes as long to lend a connection and take it back as Redis takes for a lock.

    Args:
        client: its connections are borrowed; it has no other user.
    """

    def __init__(self, client: Any) -> None:
        super().__init__(client, ours=True)
        self._idle: deque[Any] = deque()

    def borrow(self, place: str) -> Any:
        """Return a connection that is connected and has no unread answer."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if _ready(connection):
                return connection
            # The pool connects it again, or raises the reason.
            connection.disconnect()
            self._pool.release(connection)
        return super().borrow(place)

    def give_back(self, place: str, connection: Any) -> None:  # noqa: ARG002
        """Keep it for the next borrower."""
        self._idle.append(connection)

    def leave(self, place: str) -> None:
        """Close idle connections here and in the pool."""
        for _ in range(len(self._idle)):
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread borrows one
                break
            connection.disconnect()
            self._pool.release(connection)
        super().leave(place)


def _ready(connection: Any) -> bool:
    """Return whether a connection belongs to this process, is connected, and has no unread data."""
    try:
        return connection.pid == os.getpid() and not connection.can_read()
    except (RedisError, OSError):
        return False


def borrowed(pool: Any) -> Any:
    """Return a connection of `pool`; the older client requires the command's name."""
    return pool.get_connection() if HAS_PROTOCOLS else pool.get_connection("EVALSHA")


def unshared(pool: Any) -> Any:
    """Return a new connection like those of `pool`; subscriptions are read in RESP2, which every client supports."""
    arguments = dict(pool.connection_kwargs)
    if HAS_PROTOCOLS:
        arguments["protocol"] = 2
    # Newer clients link a connection to its pool; this connection is in none.
    for name in [name for name in arguments if "maint" in name]:
        del arguments[name]
    return pool.connection_class(**arguments)
