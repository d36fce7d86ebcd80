"""Fixtures of the tests of locks."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oncemq.redis import RedisClient
from oncemq.redis.connect import make_client


@pytest.fixture
def make(any_redis_url: str) -> Iterator[Callable[[], RedisClient]]:
    """Return a function that makes clients, each another process to Redis; on a server and on a cluster."""
    clients: list[RedisClient] = []

    def new() -> RedisClient:
        clients.append(make_client(any_redis_url))
        return clients[-1]

    yield new
    for client in clients:
        client.close()


@pytest.fixture
def client(make: Callable[[], RedisClient]) -> RedisClient:
    """A client."""
    return make()


@pytest.fixture
def rival(make: Callable[[], RedisClient]) -> RedisClient:
    """A client of someone else."""
    return make()


@pytest.fixture
def fields() -> Callable[[RedisClient, str], dict[str, str]]:
    """Return a function that reads a lock's hash."""

    def read(client: RedisClient, name: str) -> dict[str, str]:
        found: list[Any] = client.command("HGETALL", name, key=name)
        texts = [name.decode() for name in found]
        return dict(zip(texts[::2], texts[1::2], strict=True))

    return read
