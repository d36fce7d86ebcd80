"""Opens routes from an address, or our client from the user's own."""

from importlib.util import find_spec
from typing import Any

import redis

from oncemq.errors import MissingExtra
from oncemq.redis.address import Formation, RedisAddress
from oncemq.redis.routes import Routes
from oncemq.redis.sentinels import Sentinels, to_named_server
from oncemq.redis.server import HAS_PROTOCOLS, KeptServerRoutes, ServerRoutes
from oncemq.redis.tls import TlsFiles


def open_address(address: RedisAddress, *, seconds: float, connections: int, files: TlsFiles) -> Routes:
    """Return the routes to an address; a cluster's slots are loaded now, other servers are contacted on first use.

    Args:
        address: servers and credentials.
        seconds: limit for connecting and for a single answer.
        connections: maximum per server at a time.
        files: for TLS, if the address asks for it.
    """
    arguments: dict[str, Any] = {
        "username": address.username,
        "password": address.password,
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
        "socket_keepalive": True,
        "max_connections": connections,
    }
    if HAS_PROTOCOLS:
        from redis.backoff import NoBackoff  # noqa: PLC0415 - redis 3.5 has none, and never retries by itself
        from redis.retry import Retry  # noqa: PLC0415

        # Retries are our decision: a client cannot know which commands may be applied twice.
        arguments |= {"protocol": 2, "retry": Retry(NoBackoff(), 0)}
    tls = files.arguments() if address.tls else {}
    if address.formation is Formation.CLUSTER:
        return _cluster(address, arguments | tls)
    arguments["db"] = address.database
    if address.formation is Formation.SENTINEL:
        return ServerRoutes(_behind_sentinels(address, arguments, tls), ours=True)
    host, port = address.places[0]
    return KeptServerRoutes(redis.Redis(host=host, port=port, **arguments, **tls))


def routes_of(client: Any) -> Routes:
    """Return the routes of a `redis.Redis`, a `redis.RedisCluster` or a `rediscluster.RedisCluster`.

    Raises:
        TypeError: it is none of these.
    """
    package = {
        kind.__module__.partition(".")[0] for kind in type(client).__mro__ if kind.__name__ == "RedisCluster"
    }
    if "rediscluster" in package:
        from oncemq.redis.original_cluster import OriginalClusterRoutes  # noqa: PLC0415 - one client or the other

        return OriginalClusterRoutes(client, ours=False)
    if "redis" in package:
        from oncemq.redis.cluster import ClusterRoutes  # noqa: PLC0415 - one client or the other

        return ClusterRoutes(client, ours=False)
    if isinstance(client, redis.Redis):
        return ServerRoutes(client, ours=False)
    raise TypeError(f"{type(client).__name__} is not a client of redis-py or redis-py-cluster")


def _cluster(address: RedisAddress, arguments: dict[str, Any]) -> Routes:
    if find_spec("redis.cluster") is not None:
        from redis.cluster import ClusterNode, RedisCluster  # noqa: PLC0415 - one client or the other

        from oncemq.redis.cluster import ClusterRoutes  # noqa: PLC0415

        make_node: Any = ClusterNode  # untyped
        nodes = [make_node(host, port) for host, port in address.places]
        return ClusterRoutes(RedisCluster(startup_nodes=nodes, **arguments), ours=True)
    if find_spec("rediscluster") is None:
        raise MissingExtra(
            "a Redis Cluster needs redis 5 or newer, or redis-py-cluster beside the older one: "
            "pip install 'oncemq[redis]' or 'oncemq[redis-py-cluster]'"
        )
    import rediscluster  # noqa: PLC0415

    from oncemq.redis.original_cluster import OriginalClusterRoutes, open_slots  # noqa: PLC0415

    places = [{"host": host, "port": str(port)} for host, port in address.places]
    arguments["max_connections_per_node"] = True
    client = rediscluster.RedisCluster(startup_nodes=places, init_slot_cache=False, **arguments)
    open_slots(client, tls=address.tls)
    return OriginalClusterRoutes(client, ours=True)


def _behind_sentinels(address: RedisAddress, arguments: dict[str, Any], tls: dict[str, Any]) -> Any:
    asking = {
        name: value
        for name, value in arguments.items()
        if name.startswith("socket_") or name in {"protocol", "retry"}
    }
    sentinels: Any = Sentinels  # untyped
    known = sentinels(list(address.places), sentinel_kwargs={**asking, **tls})
    return known.master_for(address.service, **arguments, **to_named_server(tls))
