"""Keeps one client per process for each URL and each client of the user's own, so that connections are shared.

A child process inherits no clients: their threads do not exist there, and the sockets belong to the parent. Clients
that are open when the process ends are closed then.
"""

import atexit
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from oncemq.redis.client import RedisClient

_ATTRIBUTE = "_oncemq_client"


class SharedClients:
    """The clients of one process."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._by_url: dict[str, RedisClient] = {}

    def of_url(self, url: str, make: Callable[[str], RedisClient]) -> RedisClient:
        """Return the client of this URL, created on first use."""
        found = self._by_url.get(url)
        if found is not None:
            return found
        with self._mutex:
            if url not in self._by_url:
                self._by_url[url] = make(url)
            return self._by_url[url]

    def of_object(self, source: Any, make: Callable[[Any], RedisClient]) -> RedisClient:
        """Return our client of a user's client; it is dropped together with that."""
        with self._mutex:
            pid, known = getattr(source, _ATTRIBUTE, (0, None))
            if known is None or pid != os.getpid():
                known = make(source)
                with suppress(AttributeError):  # an object without attributes is not a client either
                    setattr(source, _ATTRIBUTE, (os.getpid(), known))
            return known

    def forget(self) -> None:
        """Drop all clients in a child process: the parent's connections are neither used nor closed."""
        self._mutex = threading.Lock()
        self._by_url = {}

    def close(self) -> None:
        """Close all clients of URLs."""
        with self._mutex:
            clients, self._by_url = list(self._by_url.values()), {}
        for client in clients:
            with suppress(Exception):
                client.close()


SHARED = SharedClients()
os.register_at_fork(after_in_child=SHARED.forget)
atexit.register(SHARED.close)
