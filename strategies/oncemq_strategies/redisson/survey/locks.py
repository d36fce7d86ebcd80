"""Survey of locks for operators: which are held, by which owner and for how long."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from oncemq.redis import RedisClient
from oncemq.redis.call import Argument, Call
from oncemq.redis.faults import Failure
from oncemq_strategies.redisson.lock_scripts import FORCE
from oncemq_strategies.redisson.names import below, channel_of, queue_of, token_of

_AT_ONCE = 200
KEYS_IN_A_STEP = 1000
MOST_STEPS = 500
"""Steps through the keys of a Redis for a page."""
LOCK, READ, WRITE = "lock", "read lock", "write lock"
"""Kinds of what is held: a lock, and both sides of a read-write lock."""
_LEFT_OUT = "redisson_"
_MOST_HOLDS = 100
"""Of one reader, whose ends are asked for."""


@dataclass(frozen=True, slots=True)
class Held:
    """A lock, or a permit of a semaphore, as stored in Redis.

    Args:
        name: the lock's, or the semaphore's.
        owner: the client and its thread, or its unit; of a permit its name.
        holds: number of its owner's acquisitions not yet released.
        ends_in: seconds until it frees itself; None = never, which no lock of ours or Redisson's does.
        token: the last token issued; 0 if none.
        waiting: length of its queue, if it is a fair lock.
        kind: what it is.
        left: permits of the semaphore that are not given; None for a lock.
    """

    name: str
    owner: str
    holds: int
    ends_in: float | None
    token: int = 0
    waiting: int = 0
    kind: str = LOCK
    left: int | None = None

    def __str__(self) -> str:
        if not self.owner:
            return f"with {self.left} permits left, whose owners are not known"
        ends = "for ever" if self.ends_in is None else f"for {self.ends_in:.1f}s"
        more = f", token {self.token}" if self.token else ""
        return f"held by {self.owner} {ends}{more}" + (f", {self.waiting} waiting" if self.waiting else "")


def held_by(client: RedisClient, name: str) -> Held | None:
    """Return the holder of a lock; None when it is free, or another kind of lock, or none.

    Raises:
        RedisUnavailable: Redis does not answer.
    """
    return next((held for held in _held(client, [name]) if held.kind == LOCK), None)


def holders(client: RedisClient, name: str) -> list[Held]:
    """Return the holders of a lock, or of both sides of a read-write lock; none when it is free, or no lock.

    Raises:
        RedisUnavailable: Redis does not answer.
    """
    return list(_held(client, [name]))


def all_held(client: RedisClient, pattern: str = "*") -> Iterator[Held]:
    """Yield the held locks whose names match a glob pattern, in no particular order; scans every key of that form.

    Each owner of a read-write lock is one of them.

    Raises:
        RedisUnavailable: Redis does not answer.
    """
    for held in _found(client, pattern):
        yield from held


def some_held(
    client: RedisClient, pattern: str, most: int, kinds: Container[str] = (LOCK,)
) -> tuple[Sequence[Held], bool]:
    """Return held locks whose names match a glob pattern, by name, and whether these are all.

    Args:
        client: the Redis.
        pattern: of names.
        most: of the locks.
        kinds: of locks.

    Raises:
        RedisUnavailable: Redis does not answer.
    """
    steps = ([held for held in step if held.kind in kinds] for step in _found(client, pattern))
    return bounded(steps, most)


def bounded(steps: Iterable[Sequence[Held]], most: int) -> tuple[Sequence[Held], bool]:
    """Return what is found in some steps through the keys, by name, and whether that is all."""
    found: list[Held] = []
    for number, held in enumerate(steps, 1):
        found += held
        if len(found) > most or number == MOST_STEPS:
            return sorted(found[:most], key=_by_name), False
    return sorted(found, key=_by_name), True


def _by_name(held: Held) -> tuple[str, str]:
    return held.name, held.owner


def _found(client: RedisClient, pattern: str) -> Iterator[list[Held]]:
    """Yield the held locks of each step through the keys; SCAN may return a key again, a lock is yielded once."""
    seen: set[str] = set()
    for names in scanned(client, pattern, "hash"):
        held = list(_held(client, sorted(set(names) - seen)))
        seen.update(lock.name for lock in held)
        yield held


def scanned(client: RedisClient, pattern: str, kind: str) -> Iterator[list[str]]:
    """Yield names of keys, for each step through them; a step looks at about a thousand.

    Args:
        client: the Redis.
        pattern: of names.
        kind: of values, as the command TYPE names it.
    """
    for place in client.routes.masters():
        cursor: Any = "0"
        while True:
            cursor, keys = client.at(
                place, "SCAN", cursor, "MATCH", pattern, "COUNT", KEYS_IN_A_STEP, "TYPE", kind
            )
            yield [name for name in map(text_of, keys) if not name.startswith(_LEFT_OUT)]
            if text_of(cursor) == "0":
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
        found, left, token, waiting = answers[4 * index : 4 * index + 4]
        if isinstance(found, Failure):
            if "WRONGTYPE" in str(found):
                continue
            raise found
        fields = fields_of(found)
        ends_in = None if left < 0 else left / 1000
        if "mode" in fields:
            yield from _sides(client, name, fields, ends_in)
        elif len(fields) == 1:
            ((owner, holds),) = fields.items()
            if holds.isdigit():
                yield Held(name, owner, int(holds), ends_in, _number(token), _number(waiting))


def _sides(client: RedisClient, name: str, fields: dict[str, str], ends_in: float | None) -> Iterator[Held]:
    """Yield the owners of a read-write lock: a writer's hold ends with the lock, a reader's with the last of its own."""
    written = fields.pop("mode") == "write"
    holds = {owner: int(count) for owner, count in fields.items() if count.isdigit()}
    for owner, count in holds.items():
        if written and owner.endswith(":write"):
            yield Held(name, owner, count, ends_in, kind=WRITE)
            continue
        keys = [
            f"{below(name, owner)}:rwlock_timeout:{number}"
            for number in range(1, 1 + min(count, _MOST_HOLDS))
        ]
        ends = client.together([Call(key, ("PTTL", key)) for key in keys])
        last = max((_number(each) for each in ends), default=0)
        # One whose own lease is over is dead: it holds nothing, and the release of another reader removes it.
        if last > 0:
            yield Held(name, owner, count, last / 1000, kind=READ)


def _questions(name: str) -> list[Call]:
    token, queue = token_of(name), queue_of(name)
    return [
        Call(name, ("HGETALL", name)),
        Call(name, ("PTTL", name)),
        Call(token, ("GET", token)),
        Call(queue, ("LLEN", queue)),
    ]


def fields_of(answer: Any) -> dict[str, str]:
    """Return the pairs of an answer as a mapping: a client that decodes may return one already."""
    if isinstance(answer, dict):
        return {text_of(name): text_of(value) for name, value in answer.items()}
    texts = [text_of(value) for value in answer]
    return dict(zip(texts[::2], texts[1::2], strict=False))


def _number(value: Any) -> int:
    return 0 if value is None or isinstance(value, Failure) else int(value)


def text_of(value: Any) -> str:
    """Return an answer as text; bytes that are none are replaced."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
