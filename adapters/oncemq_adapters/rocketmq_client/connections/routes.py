"""Routes of topics: which brokers hold which queues, as the name servers say or said before."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.cluster import Cluster
from oncemq_adapters.rocketmq_client.codes import Place
from oncemq_adapters.rocketmq_client.errors import Denied, MalformedFrame, RocketMQError, RocketMQUnavailable
from oncemq_adapters.rocketmq_client.protocol.connection import Connection, Fields
from oncemq_adapters.rocketmq_client.protocol.frames import loose_json

MASTER = "0"


@dataclass(frozen=True, slots=True)
class Route:
    """The queues of a topic, sorted as every member of a group sorts them.

    Args:
        readable: those to consume.
        writable: those to publish to.
    """

    readable: tuple[Place, ...]
    writable: tuple[Place, ...]


class Routes:
    """Asks the name servers, one after the other, and remembers; safe for all threads.

    Attributes:
        masters: where each known broker listens.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._routes: dict[str, Route] = {}
        self._connections: dict[str, Connection] = {}
        self._lock = Lock()
        self._closed = False
        self.masters: dict[str, str] = {}

    def find(self, topic: str) -> Route:
        """Return a topic's route, from memory if it is there.

        Raises:
            RocketMQRefused: there is no such topic.
            RocketMQUnavailable: no name server answers.
        """
        return self._routes.get(topic) or self.ask(topic)

    def ask(self, topic: str) -> Route:
        """Return a topic's route as it is now."""
        _, body = self._call(codes.ROUTE, {"topic": topic})
        route = self._learn(loose_json(body))
        self._routes[topic] = route
        return route

    def forget(self, topic: str) -> None:
        """Ask again next time."""
        self._routes.pop(topic, None)

    def refresh(self) -> None:
        """Ask for every known route again; those of brokers that restart are missing for a while, and kept."""
        for topic in list(self._routes):
            try:
                self.ask(topic)
            except Denied:
                continue
            except RocketMQError:
                return

    def brokers(self) -> Mapping[str, str]:
        """Return the masters that the name servers know now, by name."""
        info = loose_json(self._call(codes.CLUSTER_INFO, {})[1])
        try:
            table = info.get("brokerAddrTable") or {}
            found = {
                str(name): str(entry["brokerAddrs"][MASTER])
                for name, entry in table.items()
                if MASTER in entry["brokerAddrs"]
            }
        except (AttributeError, KeyError, TypeError) as error:
            raise MalformedFrame(f"a name server's answer cannot be understood: {error!r}") from error
        self.masters.update(found)
        return found

    def topics(self) -> frozenset[str]:
        """Return the names of all topics; none where the account may not list them."""
        try:
            info = loose_json(self._call(codes.ALL_TOPICS, {})[1])
            return frozenset(map(str, info["topicList"]))
        except (Denied, AttributeError, KeyError, TypeError):
            return frozenset()

    def close(self) -> None:
        """Disconnect for good."""
        with self._lock:
            self._closed = True
            connections = list(self._connections.values())
            self._connections.clear()
        for connection in connections:
            connection.close()

    def _learn(self, info: Any) -> Route:
        try:
            masters = {
                str(broker["brokerName"]): str(broker["brokerAddrs"][MASTER])
                for broker in info["brokerDatas"]
                if MASTER in broker["brokerAddrs"]
            }
            self.masters.update(masters)
            queues = info["queueDatas"]
            writable = _places(queues, codes.WRITABLE, "writeQueueNums")
            return Route(
                _places(queues, codes.READABLE, "readQueueNums"),
                # As Java's producers: only a master stores messages. Where none is left, the sender is told that it is away.
                tuple(place for place in writable if place[0] in masters) or writable,
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise MalformedFrame(f"a route cannot be understood: {error!r}") from error

    def _call(self, code: int, fields: Fields) -> tuple[Fields, bytes]:
        failures: list[RocketMQError] = []
        for server in self._cluster.name_servers:
            try:
                connection = self._connection(server)
                return connection.call(code, fields, timeout=self._cluster.connect_timeout.total_seconds())
            except Denied:
                raise
            except RocketMQUnavailable as error:
                failures.append(error)
        raise failures[0]

    def _connection(self, server: str) -> Connection:
        with self._lock:
            known = self._connections.get(server)
        if known is not None and known.alive:
            return known
        fresh = Connection(self._cluster, server, "name server")
        with self._lock:
            known = self._connections.get(server)
            if known is not None and known.alive:
                fresh.close()
                return known
            # A query that ran until now, on its own thread, must not leave a connection open.
            if self._closed:
                fresh.close()
                raise RocketMQUnavailable("the adapter is closed")
            self._connections[server] = fresh
        return fresh


class Patience:
    """Says when to try a peer again that could not be reached: soon, then ever more seldom."""

    def __init__(self, longest: float = 2.0) -> None:
        self._longest = longest
        self._failed: dict[str, tuple[float, float, RocketMQError]] = {}

    def check(self, peer: str) -> None:
        """Raise the last error while it is too early to try again."""
        since, pause, error = self._failed.get(peer, (0.0, 0.0, None))
        if error is not None and time.monotonic() < since + pause:
            raise error

    def failed(self, peer: str, error: RocketMQError) -> None:
        """Note a failure."""
        pause = min(self._longest, self._failed.get(peer, (0.0, 0.05, error))[1] * 2)
        self._failed[peer] = (time.monotonic(), pause, error)

    def succeeded(self, peer: str) -> None:
        """Forget the failures."""
        self._failed.pop(peer, None)


def _places(queues: Sequence[Mapping[str, Any]], bit: int, count: str) -> tuple[Place, ...]:
    return tuple(
        sorted(
            (str(queue["brokerName"]), number)
            for queue in queues
            if int(queue["perm"]) & bit
            for number in range(min(int(queue[count]), 65536))
        )
    )
