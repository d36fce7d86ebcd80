"""Fixtures of the Redis tests."""

from collections.abc import Iterator

import pytest

from oncemq.redis import RedisClient
from oncemq.redis.connect import make_client


@pytest.fixture
def client(any_redis_url: str) -> Iterator[RedisClient]:
    """A client of the shared server, and one of the shared cluster."""
    client = make_client(any_redis_url)
    yield client
    client.close()
