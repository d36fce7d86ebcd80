"""The ways of a cluster by redis-py's own `RedisCluster`: its map of slots and its pools of connections."""

from collections.abc import Sequence
from typing import Any

from redis.cluster import RedisCluster

from oncemq.redis.routes import Routes
from oncemq.redis.server import borrowed, unshared


class ClusterRoutes(Routes):
    """Routes of a `redis.RedisCluster`.

    Args:
        client: whose connections are borrowed.
        ours: it is closed with these routes.
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
        """Return whether the map shows the place, be it as a replica."""
        return self._client.get_node(node_name=place) is not None

    def borrow(self, place: str) -> Any:
        """Return a connection that is connected and has no answer waiting."""
        return borrowed(self._pool(place))

    def give_back(self, place: str, connection: Any) -> None:
        """Return it to its pool; one of a node that has left the cluster is closed."""
        try:
            self._pool(place).release(connection)
        except LookupError:
            connection.disconnect()

    def own(self, place: str) -> Any:
        """Return a connection that no pool knows."""
        return unshared(self._pool(place))

    def refresh(self) -> None:
        """Ask the nodes again which slots they hold."""
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
