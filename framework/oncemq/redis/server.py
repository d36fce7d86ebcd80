"""The way to a single server, or to the one that sentinels name: redis-py's pool of connections."""

import os
from collections import deque
from collections.abc import Sequence
from typing import Any

import redis.connection
from redis.exceptions import RedisError

from oncemq.redis.routes import Routes

HAS_PROTOCOLS = hasattr(redis.connection, "AbstractConnection")
"""Whether this is redis-py 5 or newer, and not the 3.5 beside redis-py-cluster."""


class ServerRoutes(Routes):
    """Routes of a `redis.Redis`.

    Args:
        client: whose connections are borrowed.
        ours: it is closed with these routes.
    """

    def __init__(self, client: Any, *, ours: bool) -> None:
        self._client = client
        self._pool = client.connection_pool
        self._ours = ours
        known = self._pool.connection_kwargs
        self._masters = (f"{known['host']}:{known['port']}" if "host" in known else "server",)

    def place(self, slot: int) -> str:  # noqa: ARG002
        """Return the one place."""
        return self._masters[0]

    def masters(self) -> Sequence[str]:
        """Return the one place."""
        return self._masters

    def borrow(self, place: str) -> Any:  # noqa: ARG002
        """Return a connection that is connected and has no answer waiting."""
        return borrowed(self._pool)

    def give_back(self, place: str, connection: Any) -> None:  # noqa: ARG002
        """Return it to the pool."""
        self._pool.release(connection)

    def leave(self, place: str) -> None:  # noqa: ARG002
        """Close what is idle; a new connection asks for the name's address, or the sentinels, again."""
        self._pool.disconnect(inuse_connections=False)

    def own(self, place: str) -> Any:  # noqa: ARG002
        """Return a connection that the pool does not know."""
        return unshared(self._pool)

    def refresh(self) -> None:
        """There is one server; sentinels are asked with every new connection."""

    def close(self) -> None:
        """Disconnect, unless the client is the user's."""
        if self._ours:
            self._pool.disconnect()


class KeptServerRoutes(ServerRoutes):
    """Routes of a `redis.Redis` of ours to one server for good, which keep what is idle themselves.

    The pool takes as long for lending a connection and taking it back as Redis for a lock.

    Args:
        client: whose connections are borrowed; nobody else uses it.
    """

    def __init__(self, client: Any) -> None:
        super().__init__(client, ours=True)
        self._idle: deque[Any] = deque()

    def borrow(self, place: str) -> Any:
        """Return a connection that is connected and has no answer waiting."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if _ready(connection):
                return connection
            # The pool connects it again, or says why not.
            connection.disconnect()
            self._pool.release(connection)
        return super().borrow(place)

    def give_back(self, place: str, connection: Any) -> None:  # noqa: ARG002
        """Keep it for the next one."""
        self._idle.append(connection)

    def leave(self, place: str) -> None:
        """Close what is idle here and in the pool."""
        for _ in range(len(self._idle)):
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread borrows one
                break
            connection.disconnect()
            self._pool.release(connection)
        super().leave(place)


def _ready(connection: Any) -> bool:
    """Return whether a connection is this process' own, is connected, and says nothing unasked."""
    try:
        return connection.pid == os.getpid() and not connection.can_read()
    except (RedisError, OSError):
        return False


def borrowed(pool: Any) -> Any:
    """Return a connection of `pool`; the older client wants to be told for which command."""
    return pool.get_connection() if HAS_PROTOCOLS else pool.get_connection("EVALSHA")


def unshared(pool: Any) -> Any:
    """Return a new connection like those of `pool`; subscriptions are read in RESP2, which every client speaks."""
    arguments = dict(pool.connection_kwargs)
    if HAS_PROTOCOLS:
        arguments["protocol"] = 2
    # Newer clients' own affair with the pool that a connection is in; this one is in none.
    for name in [name for name in arguments if "maint" in name]:
        del arguments[name]
    return pool.connection_class(**arguments)
