"""Connects an app to Redis: from its configuration, opened later, or from a client of the user's own."""

from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from oncemq.errors import MissingExtra
from oncemq.redis.address import RedisAddress, parse_address
from oncemq.redis.client import RedisClient
from oncemq.redis.routes import Routes
from oncemq.redis.sharing import SHARED
from oncemq.redis.tls import TlsFiles

TIMEOUT = timedelta(seconds=2)
CONNECTIONS = 64
NO_FILES = TlsFiles()


def make_client(
    url: str,
    *,
    username: str | None = None,
    password: str | None = None,
    timeout: timedelta = TIMEOUT,
    connections: int = CONNECTIONS,
    files: TlsFiles = NO_FILES,
) -> RedisClient:
    """Return a client that connects on first use.

    Args:
        url: as `oncemq.redis.address.parse_address` reads it.
        username: used instead of the URL's.
        password: used instead of the URL's.
        timeout: limit for connecting and for a single answer.
        connections: maximum per server at a time.
        files: CA, certificate and key, for `rediss://`.

    Raises:
        ConfigError: the URL cannot be parsed, or the files cannot be used.
        MissingExtra: the package `redis` is not installed.
    """
    address = parse_address(url, username=username, password=password)
    _need_library(str(address))
    files.check(tls=address.tls)
    return RedisClient(lambda: _open(address, timeout.total_seconds(), connections, files), str(address))


def client_of(source: Any) -> RedisClient:
    """Return our client for a `RedisClient`, a URL, or a redis-py or redis-py-cluster client, which stays the user's.

    A process has one client of ours per URL and per user client; that of a URL is closed when the process ends.
    """
    if isinstance(source, RedisClient):
        return source
    if isinstance(source, str):
        return SHARED.of_url(source, make_client)
    _need_library("it")
    return SHARED.of_object(source, _around)


def _around(source: Any) -> RedisClient:
    def routes() -> Routes:
        from oncemq.redis.opening import routes_of  # noqa: PLC0415 - needs an optional package

        return routes_of(source)

    return RedisClient(routes)


def _open(address: RedisAddress, seconds: float, connections: int, files: TlsFiles) -> Routes:
    from oncemq.redis.opening import open_address  # noqa: PLC0415 - needs an optional package

    return open_address(address, seconds=seconds, connections=connections, files=files)


def _need_library(what: str) -> None:
    if find_spec("redis") is None:
        raise MissingExtra(
            f"{what} needs the package 'redis', which is not installed: pip install 'oncemq[redis]'"
        )
