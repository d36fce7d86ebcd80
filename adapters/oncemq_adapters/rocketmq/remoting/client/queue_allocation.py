"""Allocates queues to members of a group, as Java's members do by default, so that all agree."""

from collections.abc import Sequence
from typing import TypeVar

from oncemq_adapters.rocketmq.remoting.protocol.heartbeat import java_hash

T = TypeVar("T")


def allocate(me: str, queues: Sequence[T], members: Sequence[str]) -> Sequence[T]:
    """Return the share of `me`: neighbouring queues, the first members one more if it does not come out even.

    Args:
        me: one of `members`.
        queues: sorted the same way by every member.
        members: client ids, sorted.
    """
    size, rest = divmod(len(queues), len(members))
    at = members.index(me)
    start = at * size + min(at, rest)
    return queues[start : start + size + (at < rest)]


def spread_of(key: str, queues: int) -> int:
    """Return which of so many queues takes a key's messages, as Java's `SelectMessageQueueByHash` decides."""
    return abs(java_hash(key)) % queues
