"""Probes Redis: checks that it answers correctly, and warns of risky settings."""

from collections.abc import Iterator

from oncemq.errors import RedisRefused, RedisUnavailable
from oncemq.redis.client import RedisClient

EVICTING = frozenset(
    {
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "volatile-ttl",
    }
)


def prove(client: RedisClient) -> None:
    """Return if every master answers.

    Raises:
        RedisUnavailable: a master does not answer.
        RedisRefused: the user name or password is wrong.
        MissingExtra: the client library is not installed.
    """
    for place in client.routes.masters():
        client.at(place, "PING")


def server_facts(client: RedisClient) -> Iterator[str]:
    """Yield the version and settings of each master, without its address."""
    for place in client.routes.masters():
        text = client.at(place, "INFO", "server")
        lines = (text.decode() if isinstance(text, bytes) else str(text)).splitlines()
        version = next(
            (line.partition(":")[2] for line in lines if line.startswith("redis_version:")),
            "version not told",
        )
        names = ("maxmemory-policy", "appendonly", "appendfsync")
        settings = [f"{name} {value}" for name in names if (value := _setting(client, place, name))]
        yield ", ".join([version, *settings])


def startup_warnings(client: RedisClient | None) -> list[str]:
    """Return warnings about the servers' settings, one sentence each; settings that we may not read are skipped."""
    try:
        return list(_risks(client)) if client is not None else []
    except RedisUnavailable as error:
        return [str(error)]


def _risks(client: RedisClient) -> Iterator[str]:
    for place in client.routes.masters():
        policy = _setting(client, place, "maxmemory-policy")
        if policy in EVICTING:
            yield (
                f"Redis at {place} may throw keys away when its memory is full (maxmemory-policy {policy}): locks, "
                "flags and marks vanish with them; set it to noeviction"
            )


def _setting(client: RedisClient, place: str, name: str) -> str:
    try:
        answer = client.at(place, "CONFIG", "GET", name)
    except RedisRefused:
        return ""
    value = answer[1] if len(answer) > 1 else b""
    return value.decode() if isinstance(value, bytes) else str(value)
