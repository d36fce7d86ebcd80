"""Allocates queues to members of a group by the rules of Java's client, so that members of both divide them alike."""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from oncemq_adapters.rocketmq_client.codes import Place
from oncemq_adapters.rocketmq_client.names import (
    AVERAGELY,
    BY_CIRCLE,
    CONSISTENT_HASH,
)
from oncemq_adapters.rocketmq_client.protocol.heartbeat import java_hash

_VIRTUAL_NODES = 10
"""Places of a member on the ring, as Java's client has by default."""

Rule = Callable[[str, str, Sequence[Place], Sequence[str]], Sequence[Place]]
"""Called with (topic, member, queues, members)."""


def allocate(
    rule: str, topic: str, me: str, queues: Sequence[Place], members: Sequence[str]
) -> Sequence[Place]:
    """Return the queues of `me`.

    Args:
        rule: its name, as Java's classes have it.
        topic: by its real name.
        me: one of `members`.
        queues: sorted the same way by every member.
        members: client ids, sorted.
    """
    return _RULES[rule](topic, me, queues, members)


def spread_of(key: str, queues: int) -> int:
    """Return which of so many queues takes a key's messages, as Java's `SelectMessageQueueByHash` decides."""
    return abs(java_hash(key)) % queues


def _averagely(_topic: str, me: str, queues: Sequence[Place], members: Sequence[str]) -> Sequence[Place]:
    """Return neighbouring queues, the first members one more if it does not come out even."""
    size, rest = divmod(len(queues), len(members))
    at = members.index(me)
    start = at * size + min(at, rest)
    return queues[start : start + size + (at < rest)]


def _by_circle(_topic: str, me: str, queues: Sequence[Place], members: Sequence[str]) -> Sequence[Place]:
    """Return every n-th queue, where n is the number of members."""
    return queues[members.index(me) :: len(members)]


def _by_consistent_hash(
    topic: str, me: str, queues: Sequence[Place], members: Sequence[str]
) -> Sequence[Place]:
    """Return the queues for which this member is the next on a ring of hashes."""
    ring = {
        _ring_hash(f"{member}-{number}"): member for member in members for number in range(_VIRTUAL_NODES)
    }
    places = sorted(ring)

    def owner(place: Place) -> str:
        text = f"MessageQueue [topic={topic}, brokerName={place[0]}, queueId={place[1]}]"
        return ring[places[bisect_left(places, _ring_hash(text)) % len(places)]]

    return [place for place in queues if owner(place) == me]


def _ring_hash(text: str) -> int:
    # Not for secrecy: the ring of Java's client.
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4])


_RULES: Mapping[str, Rule] = {
    AVERAGELY: _averagely,
    BY_CIRCLE: _by_circle,
    CONSISTENT_HASH: _by_consistent_hash,
}
