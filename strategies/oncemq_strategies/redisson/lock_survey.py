"""Survey of locks for operators: which are held, by which owner and for how long."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from oncemq.redis import RedisClient
from oncemq.redis.call import Argument, Call
from oncemq.redis.faults import Failure
from oncemq_strategies.redisson.lock_scripts import FORCE
from oncemq_strategies.redisson.names import channel_of, queue_of, token_of

_AT_ONCE = 200
KEYS_IN_A_STEP = 1000
MOST_STEPS = 500
"""Steps through the keys of a Redis for a page."""
_LEFT_OUT = "redisson_"


@dataclass(frozen=True, slots=True)
class Held:
    """A lock as stored in Redis.

    Args:
        name: the lock's.
        owner: the client and its thread, or its unit.
        holds: number of its owner's acquisitions not yet released.
        ends_in: seconds until it frees itself; None = never, which no lock of ours or Redisson's does.
        token: the last token issued; 0 if none.
        waiting: length of its queue, if it is a fair lock.
    """

    name: str
    owner: str
    holds: int
    ends_in: float | None
    token: int
    waiting: int

    def __str__(self) -> str:
        ends = "for ever" if self.ends_in is None else f"for {self.ends_in:.1f}s"
        more = f", token {self.token}" if self.token else ""
        return f"held by {self.owner} {ends}{more}" + (f", {self.waiting} waiting" if self.waiting else "")


def held_by(client: RedisClient, name: str) -> Held | None:
    """Return the holder of a lock; None when it is free, or not a lock.

    Raises:
        RedisUnavailable: Redis does not answer.
    """
    return next(iter(_held(client, [name])), None)


def all_held(client: RedisClient, pattern: str = "*") -> Iterator[Held]:
    """Yield the held locks whose names match a glob pattern, in no particular order; scans every key of that form.

    Raises:
        RedisUnavailable: Redis does not answer.
    """
    for held in _found(client, pattern):
        yield from held


def some_held(client: RedisClient, pattern: str, most: int) -> tuple[Sequence[Held], bool]:
    """Return held locks whose names match a glob pattern, by name, and whether these are all.

    Args:
        client: the Redis.
        pattern: of names.
        most: of the locks.

    Raises:
        RedisUnavailable: Redis does not answer.
    """
    found: list[Held] = []
    for number, held in enumerate(_found(client, pattern), 1):
        found += held
        if len(found) > most or number == MOST_STEPS:
            return sorted(found[:most], key=lambda held: held.name), False
    return sorted(found, key=lambda held: held.name), True


def _found(client: RedisClient, pattern: str) -> Iterator[list[Held]]:
    """Yield the held locks of each step through the keys; SCAN may return a key again, a lock is yielded once."""
    seen: set[str] = set()
    for names in _scanned(client, pattern):
        held = list(_held(client, sorted(set(names) - seen)))
        seen.update(lock.name for lock in held)
        yield held


def _scanned(client: RedisClient, pattern: str) -> Iterator[list[str]]:
    """Yield names that may be locks, for each step through the keys; a step looks at about a thousand."""
    for place in client.routes.masters():
        cursor: Any = "0"
        while True:
            cursor, keys = client.at(
                place, "SCAN", cursor, "MATCH", pattern, "COUNT", KEYS_IN_A_STEP, "TYPE", "hash"
            )
            yield [name for name in map(_text, keys) if not name.startswith(_LEFT_OUT)]
            if _text(cursor) == "0":
                break


def force_release(client: RedisClient, name: str) -> bool:
    """Force the release of a lock, and wake its waiters; returns whether it was held.

    The holder is not stopped: it continues as if it had the lock, until its watchdog notices.

    Raises:
        RedisUnavailable: Redis does not answer.
    """
    arguments: list[Argument] = [int(client.clustered), channel_of(name)]
    return bool(client.run(FORCE, [name, queue_of(name)], arguments) == 1)


def _held(client: RedisClient, names: Sequence[str]) -> Iterator[Held]:
    for start in range(0, len(names), _AT_ONCE):
        yield from _asked(client, names[start : start + _AT_ONCE])


def _asked(client: RedisClient, names: Sequence[str]) -> Iterator[Held]:
    calls = [call for name in names for call in _questions(name)]
    answers = client.together(calls)
    for index, name in enumerate(names):
        fields, left, token, waiting = answers[4 * index : 4 * index + 4]
        if isinstance(fields, Failure):
            if "WRONGTYPE" in str(fields):
                continue
            raise fields
        if isinstance(fields, list) and len(fields) == 2 and _text(fields[1]).isdigit():
            yield Held(
                name,
                _text(fields[0]),
                int(_text(fields[1])),
                None if left < 0 else left / 1000,
                _number(token),
                _number(waiting),
            )


def _questions(name: str) -> list[Call]:
    token, queue = token_of(name), queue_of(name)
    return [
        Call(name, ("HGETALL", name)),
        Call(name, ("PTTL", name)),
        Call(token, ("GET", token)),
        Call(queue, ("LLEN", queue)),
    ]


def _number(value: Any) -> int:
    return 0 if value is None or isinstance(value, Failure) else int(value)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
