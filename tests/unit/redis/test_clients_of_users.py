"""Cluster clients that an app has already: whichever generation is installed, redis-py's or the original one."""

from collections.abc import Iterator
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

import pytest

from oncemq.redis.address import parse_address
from oncemq_strategies.redisson import Lock


@pytest.fixture(params=[False, True], ids=["bytes", "texts"])
def theirs(request: pytest.FixtureRequest, redis_cluster_url: str) -> Iterator[Any]:
    """A client as a user would make it, which answers with bytes or with texts."""
    address = parse_address(redis_cluster_url)
    known = {"password": address.password, "decode_responses": request.param}
    if find_spec("redis.cluster") is not None:
        from redis.cluster import ClusterNode, RedisCluster  # noqa: PLC0415 - one or the other is installed

        client: Any = RedisCluster(startup_nodes=[ClusterNode(*place) for place in address.places], **known)
        yield client
        client.close()
    else:
        from rediscluster import RedisCluster  # noqa: PLC0415

        places = [{"host": host, "port": str(port)} for host, port in address.places]
        client = RedisCluster(startup_nodes=places, **known)
        yield client
        client.connection_pool.disconnect()  # its `close()` leaves the pool open


def test_a_lock_works_through_a_cluster_client_of_the_user(theirs: Any, fresh: str) -> None:
    """It is acquired, renewed and released over that client's connections, which stay open."""
    lock = Lock(theirs, fresh)
    with lock:
        assert theirs.exists(fresh) == 1
        assert not Lock(theirs, fresh, owner="another").acquire(timedelta(0))
    assert theirs.exists(fresh) == 0
