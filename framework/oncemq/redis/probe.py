"""Whether Redis answers as it must, and what is risky about its settings."""

from oncemq.errors import RedisRefused
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
        RedisUnavailable: one does not.
        RedisRefused: user or password are wrong.
        MissingExtra: the client library is not installed.
    """
    for place in client.routes.masters():
        client.at(place, "PING")


def startup_warnings(client: RedisClient) -> list[str]:
    """Return what is risky about the servers' settings, one sentence each; what we may not ask is not known."""
    found = []
    for place in client.routes.masters():
        policy = _setting(client, place, "maxmemory-policy")
        if policy in EVICTING:
            found.append(
                f"Redis at {place} may throw keys away when its memory is full (maxmemory-policy {policy}): locks and "
                "marks vanish with them; set it to noeviction"
            )
    return found


def _setting(client: RedisClient, place: str, name: str) -> str:
    try:
        answer = client.at(place, "CONFIG", "GET", name)
    except RedisRefused:
        return ""
    value = answer[1] if len(answer) > 1 else b""
    return value.decode() if isinstance(value, bytes) else str(value)
