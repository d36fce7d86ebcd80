"""Survey of flags for operators."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from oncemq.redis import RedisClient
from oncemq.redis.call import Call
from oncemq_strategies.common.redis_marks import key_in_redis

_SPECIAL = "\\*?[]^-"


@dataclass(frozen=True, slots=True)
class SeenFlag:
    """A flag as Redis has it.

    Args:
        key: the business key.
        state: its state.
        words: everything about it, for people.
    """

    key: str
    state: str
    words: str


def flags_of_key(client: RedisClient, scope: str, key: str) -> Mapping[str, str]:
    """Return the flags of a business key in words, by identity; scans every key of Redis.

    Raises:
        RedisUnavailable: Redis does not answer.
    """
    return {identity: flag.words for identity, flag in flags_of_keys(client, scope, [key]).items()}


def flags_of_keys(client: RedisClient, scope: str, keys: Collection[str]) -> Mapping[str, SeenFlag]:
    """Return the flags of business keys by identity; scans every key of Redis.

    Raises:
        RedisUnavailable: Redis does not answer.
    """
    prefix = key_in_redis("flag", scope, "")
    found = {}
    for name in sorted(
        _names(client, "".join(f"\\{part}" if part in _SPECIAL else part for part in prefix) + "*")
    ):
        fields = client.call(Call(name, ("HGETALL", name)))
        texts = [part.decode(errors="replace") if isinstance(part, bytes) else str(part) for part in fields]
        flag = dict(zip(texts[::2], texts[1::2], strict=True))
        if flag.get("key") in keys:
            words = _words(flag, client.command("PTTL", name, key=name))
            identity = name.removeprefix(prefix).replace("%7B", "{").replace("%25", "%")
            found[identity] = SeenFlag(flag["key"], flag.get("state", "?"), words)
    return found


def _names(client: RedisClient, pattern: str) -> Iterator[str]:
    for place in client.routes.masters():
        cursor: Any = "0"
        while True:
            cursor, names = client.at(place, "SCAN", cursor, "MATCH", pattern, "COUNT", 1000, "TYPE", "hash")
            yield from (
                name.decode(errors="replace") if isinstance(name, bytes) else str(name) for name in names
            )
            if int(cursor) == 0:
                break


def _words(flag: Mapping[str, str], left: int) -> str:
    said = [flag.get("state", "?")]
    if "until" in flag:
        said.append(f"held by {flag.get('owner', '?')}")
    said += [f"{name} {flag[name]}" for name in ("result", "reason") if flag.get(name)]
    return ", ".join([*said, f"for {left / 1000:.0f}s"])
