"""Survey of semaphores for operators: permits that are given, and those that are left."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from oncemq.redis import RedisClient
from oncemq.redis.call import Call
from oncemq.redis.faults import Failure
from oncemq_strategies.redisson.names import below
from oncemq_strategies.redisson.survey.locks import Held, bounded, scanned, text_of

PERMIT, SEMAPHORE = "permit", "semaphore"
"""Kinds of what is held: a permit with a lease of its own, and all permits of a semaphore whose permits have no owner."""
_SUFFIX = "timeout"
_FOR_EVER = 922337203685477
"""Redisson's time of an end, in ms, of permits that never end."""
_MOST_PERMITS = 1000
_AT_ONCE = 200
_NUMBER = re.compile(r"-?\d{1,18}")


def all_permits(client: RedisClient, pattern: str = "*") -> Iterator[Held]:
    """Yield the given permits of expirable semaphores whose names match a glob pattern; scans every key of that form.

    Raises:
        RedisUnavailable: Redis does not answer.
    """
    for step in _permits(client, pattern):
        yield from step


def permits_of(client: RedisClient, name: str) -> list[Held]:
    """Return the given permits of one semaphore whose permits have leases, the first to end before the others, at most 1000.

    Raises:
        RedisUnavailable: Redis does not answer.
    """
    return list(_given(client, name))


def some_permits(client: RedisClient, pattern: str, most: int) -> tuple[Sequence[Held], bool]:
    """Return such permits by the semaphore's name, and whether these are all; raises as `all_permits`."""
    return bounded(_permits(client, pattern), most)


def all_semaphores(client: RedisClient, pattern: str) -> Iterator[Held]:
    """Yield the semaphores whose names match a glob pattern, and whose permits have no leases.

    Nothing in Redis tells such a semaphore from another number: the pattern must be one of semaphores alone.

    Raises:
        RedisUnavailable: Redis does not answer.
    """
    for step in _semaphores(client, pattern):
        yield from step


def some_semaphores(client: RedisClient, pattern: str, most: int) -> tuple[Sequence[Held], bool]:
    """Return such semaphores by name, and whether these are all; as `all_semaphores`."""
    return bounded(_semaphores(client, pattern), most)


def _semaphores(client: RedisClient, pattern: str) -> Iterator[list[Held]]:
    seen: set[str] = set()
    for names in scanned(client, pattern, "string"):
        new = sorted(set(names) - seen)
        seen.update(new)
        yield semaphores_at(client, new)


def semaphores_at(client: RedisClient, names: Sequence[str]) -> list[Held]:
    """Return the semaphores of these names; one that does not exist, or whose permits have leases, is left out."""
    found = []
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        answers = client.together(
            [
                call
                for name in some
                for call in (
                    Call(name, ("GET", name)),
                    Call(name, ("EXISTS", below(name, _SUFFIX))),
                )
            ]
        )
        for index, name in enumerate(some):
            left, leases = answers[2 * index], answers[2 * index + 1]
            if left is None or isinstance(left, Failure) or leases == 1:
                continue
            if _NUMBER.fullmatch(text_of(left)):
                found.append(Held(name, "", 0, None, kind=SEMAPHORE, left=int(left)))
    return found


def _permits(client: RedisClient, pattern: str) -> Iterator[list[Held]]:
    seen: set[str] = set()
    # As `below` makes it: a name with braces of its own gets no more.
    patterns = [f"{{{pattern}}}:{_SUFFIX}", f"{pattern}:{_SUFFIX}"]
    for number, each in enumerate(patterns):
        for keys in scanned(client, each, "zset"):
            names = [_name_of(key, braced=number == 0) for key in keys]
            new = sorted({name for name in names if name is not None} - seen)
            seen.update(new)
            yield [held for name in new for held in _given(client, name)]


def _name_of(key: str, *, braced: bool) -> str | None:
    """Return the semaphore whose permits are at a key; None if none has that key."""
    name = key.removesuffix(f":{_SUFFIX}")
    name = name[1:-1] if braced else name
    return name if name and below(name, _SUFFIX) == key else None


def _given(client: RedisClient, name: str) -> Iterator[Held]:
    permits = below(name, _SUFFIX)
    left, given, time = client.together(
        [
            Call(name, ("GET", name)),
            Call(name, ("ZRANGE", permits, 0, _MOST_PERMITS - 1, "WITHSCORES")),
            Call(name, ("TIME",)),
        ]
    )
    if any(isinstance(each, Failure) for each in (left, given, time)) or left is None:
        return  # of another kind, or it went meanwhile
    if not _NUMBER.fullmatch(text_of(left)):
        return
    now = int(time[0]) * 1000 + int(time[1]) / 1000
    ends = list(_pairs(given))
    living = [(permit, until) for permit, until in ends if until > now]
    # Those that have ended are counted again by the next who asks for one.
    free = int(left) + len(ends) - len(living)
    for permit, until in living:
        name_of_permit = permit.hex() if isinstance(permit, bytes) else permit
        ends_in = None if until >= _FOR_EVER else (until - now) / 1000
        yield Held(name, name_of_permit, 1, ends_in, kind=PERMIT, left=free)


def _pairs(answer: Any) -> Iterator[tuple[Any, float]]:
    """Yield members with their scores; a client may have paired them already."""
    if answer and isinstance(answer[0], list | tuple):
        yield from ((member, float(score)) for member, score in answer)
        return
    for member, score in zip(answer[::2], answer[1::2], strict=True):
        yield member, float(score)
