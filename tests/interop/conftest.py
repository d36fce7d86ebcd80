"""What the tests beside Redisson share."""

from collections.abc import Iterator

import pytest

from interop.redisson import VERSIONS, Peer
from oncemq.redis import RedisClient
from oncemq.redis.connect import make_client


@pytest.fixture(scope="module", params=VERSIONS)
def peer(request: pytest.FixtureRequest, any_redis_url: str) -> Iterator[Peer]:
    """A Redisson of each version, on a server and on a cluster."""
    with Peer(any_redis_url, request.param) as peer:
        yield peer


@pytest.fixture
def client(any_redis_url: str) -> Iterator[RedisClient]:
    """Python's client of the same Redis."""
    client = make_client(any_redis_url)
    yield client
    client.close()
