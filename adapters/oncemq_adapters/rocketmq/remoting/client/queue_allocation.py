"""Which member of a group consumes which queue: as Java's members by default decide, so that all agree."""

import struct
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def allocate(me: str, queues: Sequence[T], members: Sequence[str]) -> Sequence[T]:
    """Return the share of `me`: neighbouring queues, the first members one more if it does not come out even.

    Args:
        me: one of `members`.
        queues: sorted alike by everybody.
        members: client ids, sorted.
    """
    size, rest = divmod(len(queues), len(members))
    at = members.index(me)
    start = at * size + min(at, rest)
    return queues[start : start + size + (at < rest)]


def java_hash(text: str) -> int:
    """Return what Java's `hashCode` says of a text; Java's producers choose queues by it."""
    data = text.encode("utf-16-be", "surrogatepass")
    result = 0
    for unit in struct.unpack(f">{len(data) // 2}H", data):
        result = (31 * result + unit) & 0xFFFFFFFF
    return result - (1 << 32) if result >> 31 else result


def spread_of(key: str, queues: int) -> int:
    """Return which of so many queues takes a key's messages, as Java's `SelectMessageQueueByHash` decides."""
    return abs(java_hash(key)) % queues
