"""Routes of a cluster through redis-py's own `RedisCluster`: its slot map and its connection pools."""

from collections.abc import Sequence
from typing import Any

from redis.cluster import RedisCluster

from oncemq.redis.routes import Routes
from oncemq.redis.server import borrowed, unshared


class ClusterRoutes(Routes):
    """Routes of a `redis.RedisCluster`.

    Args:
        client: its connections are borrowed.
        ours: the client is closed with these routes.
    """

    clustered = True

    def __init__(self, client: RedisCluster, *, ours: bool) -> None:
        self._client: Any = client
        self._ours = ours

    def place(self, slot: int) -> str:
        """Return the place of the slot's master."""
        return str(self._client.nodes_manager.get_node_from_slot(slot).name)

    def masters(self) -> Sequence[str]:
        """Return the places of all masters."""
        return sorted(str(node.name) for node in self._client.get_primaries())

    def knows(self, place: str) -> bool:
        """Return whether the map shows the place, also as a replica."""
        return self._client.get_node(node_name=place) is not None

    def borrow(self, place: str) -> Any:
        """Return a connection that is connected and has no unread answer."""
        return borrowed(self._pool(place))

    def give_back(self, place: str, connection: Any) -> None:
        """Return it to its pool; a connection to a node that has left the cluster is closed."""
        try:
            self._pool(place).release(connection)
        except LookupError:
            connection.disconnect()

    def own(self, place: str) -> Any:
        """Return a connection outside of any pool."""
        return unshared(self._pool(place))

    def refresh(self) -> None:
        """Reload the slot map from the nodes."""
        self._client.nodes_manager.initialize()

    def close(self) -> None:
        """Disconnect, unless the client is the user's."""
        if self._ours:
            self._client.close()

    def _pool(self, place: str) -> Any:
        node = self._client.get_node(node_name=place)
        if node is None:
            raise LookupError(place)
        return self._client.get_redis_connection(node).connection_pool
