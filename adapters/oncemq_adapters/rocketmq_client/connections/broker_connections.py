"""Connections to brokers for one purpose: opened when needed, registered with the broker, reopened when lost."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from threading import Lock

from oncemq_adapters.rocketmq_client.cluster import Cluster
from oncemq_adapters.rocketmq_client.connections.routes import Patience, Routes
from oncemq_adapters.rocketmq_client.errors import RocketMQError, RocketMQUnavailable
from oncemq_adapters.rocketmq_client.protocol.connection import Connection, Deferred
from oncemq_adapters.rocketmq_client.protocol.frames import Frame


class Brokers:
    """One connection to each broker; safe for all threads.

    Consuming and publishing have connections of their own, so that a full send buffer never delays pulls.

    Args:
        cluster: how to connect.
        routes: who the brokers are.
        hello: introduces a new connection to its broker; raises RocketMQError if it is not welcome.
        on_request: answers what the broker of a name asks.
        on_close: called with lost connections.
    """

    def __init__(
        self,
        cluster: Cluster,
        routes: Routes,
        hello: Callable[[Connection], None],
        on_request: Callable[[str, Frame], bytes | Deferred | None] | None = None,
        on_close: Callable[[str], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self._routes = routes
        self._hello = hello
        self._on_request = on_request
        self._on_close = on_close
        self._patience = Patience()
        self._lock = Lock()
        self._connecting: dict[str, Lock] = {}
        self._connections: dict[str, Connection] = {}
        self._away: dict[str, RocketMQError] = {}
        self._closed = False

    def away(self, name: str, error: RocketMQError | None) -> None:
        """Note that another thread tries to reach a broker, and why it could not so far; None when it is back."""
        if error is None:
            self._away.pop(name, None)
        else:
            self._away[name] = error

    def check(self, name: str) -> None:
        """Raise why a broker is away, so that a thread with other work does not wait for it.

        Raises:
            RocketMQError: it is away.
        """
        if (error := self._away.get(name)) is not None:
            raise error

    def reached(self, names: Iterable[str]) -> Mapping[str, Connection]:
        """Return live connections to those of these brokers that can be reached; at least one.

        Raises:
            RocketMQUnavailable: none of them can.
            RocketMQError: one does not welcome us.
        """
        found: dict[str, Connection] = {}
        failure: RocketMQUnavailable | None = None
        for name in dict.fromkeys(names):
            try:
                self.check(name)
                found[name] = self.get(name)
            except RocketMQUnavailable as error:
                failure = failure or error
        if failure is not None and not found:
            raise failure
        return found

    def get(self, name: str) -> Connection:
        """Return a live connection to the broker of this name.

        Raises:
            RocketMQError: it is unknown, cannot be reached, or does not welcome us.
        """
        known = self._connections.get(name)
        if known is not None and known.alive:
            return known
        with self._lock:
            turn = self._connecting.setdefault(name, Lock())
        with turn:
            known = self._connections.get(name)
            if known is not None and known.alive:
                return known
            return self._connect(name)

    def alive(self) -> dict[str, Connection]:
        """Return the connections that live, by broker."""
        return {name: connection for name, connection in list(self._connections.items()) if connection.alive}

    def descriptors(self) -> Sequence[int]:
        """Return those of the sockets, -1 for a released one; waits for no lock."""
        return [connection.fileno() for connection in self._connections.values()]

    def close(self) -> None:
        """Disconnect for good."""
        self._closed = True
        for connection in list(self._connections.values()):
            connection.close()

    def _connect(self, name: str) -> Connection:
        told = self._routes.masters.get(name)
        if told is None:
            raise RocketMQUnavailable(f"no name server of RocketMQ knows where broker {name!r} is")
        if self._closed:
            raise RocketMQUnavailable("the adapter is closed")
        peer = self._cluster.reached(told)
        self._patience.check(peer)
        try:
            asked = partial(self._on_request, name) if self._on_request is not None else None
            connection = Connection(
                self._cluster, peer, f"broker {name!r}", asked, lambda _: self._lost(name)
            )
            try:
                self._hello(connection)
            except BaseException as error:
                connection.close(error)
                raise
        except RocketMQError as error:
            self._patience.failed(peer, error)
            raise
        self._patience.succeeded(peer)
        self._connections[name] = connection
        if self._closed:
            connection.close()
        return connection

    def _lost(self, name: str) -> None:
        known = self._connections.get(name)
        # A new connection that the broker refused is not reported as lost.
        if self._on_close is not None and not self._closed and known is not None and not known.alive:
            self._on_close(name)
