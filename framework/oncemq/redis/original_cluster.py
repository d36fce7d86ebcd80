"""Routes of a cluster through the original `rediscluster.RedisCluster` (redis-py-cluster 2.1.3 on redis 3.5)."""

from collections.abc import Sequence
from typing import Any

from redis.exceptions import RedisError
from rediscluster import RedisCluster

from oncemq.redis.routes import Routes


class OriginalClusterRoutes(Routes):
    """Routes of a `rediscluster.RedisCluster`.

    Args:
        client: its connections are borrowed.
        ours: the client is closed with these routes.
    """

    clustered = True

    def __init__(self, client: RedisCluster, *, ours: bool) -> None:
        self._pool: Any = client.connection_pool
        self._ours = ours

    def place(self, slot: int) -> str:
        """Return the place of the slot's master."""
        return str(self._pool.get_master_node_by_slot(slot)["name"])

    def masters(self) -> Sequence[str]:
        """Return the places of all masters."""
        return sorted(str(node["name"]) for node in self._pool.nodes.all_masters())

    def knows(self, place: str) -> bool:
        """Return whether the map shows the place, also as a replica."""
        return place in self._pool.nodes.nodes

    def borrow(self, place: str) -> Any:
        """Return a connection without an unread answer; the pool itself does not check."""
        connection = self._pool.get_connection_by_node(self._node(place))
        try:
            dirty = connection._sock is not None and connection.can_read()
        except (RedisError, OSError):
            dirty = True
        if dirty:
            connection.disconnect()
        return connection

    def give_back(self, place: str, connection: Any) -> None:  # noqa: ARG002 - a connection knows its node
        """Return it to its pool."""
        self._pool.release(connection)

    def own(self, place: str) -> Any:
        """Return a connection outside of the pool."""
        node = self._node(place)
        return self._pool.connection_class(
            host=node["host"], port=node["port"], **self._pool.connection_kwargs
        )

    def refresh(self) -> None:
        """Reload the slot map from the nodes."""
        self._pool.nodes.initialize()

    def close(self) -> None:
        """Disconnect, unless the client is the user's."""
        if self._ours:
            self._pool.disconnect()

    def _node(self, place: str) -> Any:
        return self._pool.nodes.nodes[place]


def open_slots(client: RedisCluster, *, tls: bool) -> None:
    """Load the slot map for the first time.

    The client itself checks TLS host names when it sends commands, but not when it loads the slots.
    """
    nodes: Any = client.connection_pool.nodes
    unchecked = nodes.get_redis_link

    def checked(*arguments: Any, **more: Any) -> Any:
        link = unchecked(*arguments, **more)
        if tls:
            link.connection_pool.connection_kwargs["ssl_check_hostname"] = True
        return link

    nodes.get_redis_link = checked
    nodes.initialize()
