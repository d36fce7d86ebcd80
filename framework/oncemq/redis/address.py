"""Parses a Redis URL: servers, formation and credentials."""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

from oncemq.common.problems import Problem
from oncemq.errors import ConfigError

_PORT, _SENTINEL_PORT = 6379, 26379
_FORMS = (
    "write redis://host:6379/0, rediss:// for TLS, redis+cluster://host:7001,host2:7001 "
    "or redis+sentinel://host:26379/service"
)
_PLACE = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(:(?P<port>\d{1,5}))?")


class Formation(StrEnum):
    """Topology of the servers."""

    SERVER = "redis"
    CLUSTER = "cluster"
    SENTINEL = "sentinel"


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Address of Redis.

    Args:
        formation: one server, a cluster, or sentinels that know the server.
        places: hosts and ports; for a cluster some of its nodes, for sentinels some of them.
        tls: whether connections are encrypted.
        database: the number of the database; 0 in a cluster.
        service: the name under which sentinels know the server.
        username: None = the default user.
        password: its password.
    """

    formation: Formation
    places: tuple[tuple[str, int], ...]
    tls: bool = False
    database: int = 0
    service: str = ""
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        places = ", ".join(f"{host}:{port}" for host, port in self.places)
        return {
            Formation.SERVER: f"Redis at {places}",
            Formation.CLUSTER: f"the Redis Cluster at {places}",
            Formation.SENTINEL: f"Redis {self.service!r} behind the sentinels at {places}",
        }[self.formation]


def parse_address(url: str, *, username: str | None = None, password: str | None = None) -> RedisAddress:
    """Return the address in `url`; an error never repeats it, since it may hold a password.

    Args:
        url: `redis://`, `rediss://`, `redis+cluster://`, `rediss+cluster://`, `redis+sentinel://` or `rediss+sentinel://`.
        username: used instead of the URL's.
        password: used instead of the URL's.

    Raises:
        ConfigError: it cannot be parsed.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        _refuse("the URL cannot be understood")
    scheme, _plus, kind = parts.scheme.lower().partition("+")
    if scheme not in {"redis", "rediss"} or kind not in {"", "cluster", "sentinel"}:
        _refuse(f"unknown Redis {parts.scheme!r}")
    formation = Formation(kind) if kind else Formation.SERVER
    if parse_qsl(parts.query, keep_blank_values=True):
        _refuse("a Redis URL takes no parameters", "write username:, password: and timeout: beside url:")
    if parts.fragment:
        _refuse("the URL holds a #", "write it as %23, or the password as password: beside url:")
    userinfo, _at, servers = parts.netloc.rpartition("@")
    user, _colon, secret = userinfo.partition(":")
    path = [unquote(part) for part in parts.path.strip("/").split("/") if part]
    service = path.pop(0) if formation is Formation.SENTINEL and path else ""
    if formation is Formation.SENTINEL and not service:
        _refuse("the sentinels are not told which server", "write redis+sentinel://host:26379/service")
    return RedisAddress(
        formation,
        _places(servers, formation),
        scheme == "rediss",
        _database(path, formation),
        service,
        username if username is not None else unquote(user) or None,
        password if password is not None else unquote(secret) or None,
    )


def _places(servers: str, formation: Formation) -> tuple[tuple[str, int], ...]:
    usual = _SENTINEL_PORT if formation is Formation.SENTINEL else _PORT
    found = []
    for place in servers.split(","):
        match = _PLACE.fullmatch(place)
        port = int(match["port"] or usual) if match else 0
        if match is None or not 0 < port < 65536:
            _refuse("the URL does not say a host and a port")
        found.append((match["host"].strip("[]"), port))
    if formation is Formation.SERVER and len(found) > 1:
        _refuse("one server has one address", "write redis+cluster:// or redis+sentinel:// for several")
    return tuple(found)


def _database(path: list[str], formation: Formation) -> int:
    if not path:
        return 0
    if len(path) > 1 or not path[0].isascii() or not path[0].isdigit() or len(path[0]) > 5:
        _refuse("the URL's path is not the number of a database")
    if formation is Formation.CLUSTER and int(path[0]):
        _refuse("a Redis Cluster has database 0 alone", "leave the number out")
    return int(path[0])


def _refuse(text: str, advice: str = _FORMS) -> NoReturn:
    raise ConfigError([Problem(text, advice, "url")])
