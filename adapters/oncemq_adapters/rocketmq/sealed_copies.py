"""Holds a message whose properties RocketMQ takes in no copy whole in the copy's body, and opens such copies again.

A producer may use all of the room that properties have, or names and characters that a proxy takes from no client.
Only the group's own topics hold such copies, so they are opened there alone.
"""

from collections.abc import Mapping

from oncemq.message import headers as names
from oncemq.message.sealed import seal, unseal
from oncemq_adapters.rocketmq_client.properties import (
    ATTEMPTS,
    DEAD_ORIGIN_TOPIC,
    MOST_ATTEMPTS,
    ORIGIN_TOPIC,
    UNIQUE_ID,
)

_INNER, _PACKING = "properties", "packing"
_LONGEST_ID = 1000
_OUTSIDE = names.HISTORY | {ORIGIN_TOPIC, DEAD_ORIGIN_TOPIC, ATTEMPTS, MOST_ATTEMPTS, names.DEAD_ID}


def sealed(properties: Mapping[str, str], body: bytes, packing: int = 0) -> tuple[dict[str, str], bytes]:
    """Return properties and body of a copy that holds all of this; brokers and members see its way and its cause.

    Args:
        properties: too long, or of a kind that is not taken.
        body: as it was sent.
        packing: the bits that say how the body is packed.
    """
    inner, outer = dict(properties), {names.SEALED: "1"}
    unique = inner.get(UNIQUE_ID, "")
    if len(unique) <= _LONGEST_ID:
        outer[UNIQUE_ID] = unique
    else:
        # Inside it is the original's id; librocketmq compares the ids of the copies themselves.
        del inner[UNIQUE_ID]
    outer |= {name: text for name, text in properties.items() if name in _OUTSIDE and text}
    return {name: text for name, text in outer.items() if text}, seal(
        {_INNER: inner, _PACKING: packing}, body
    )


def opened(properties: Mapping[str, str], body: bytes) -> tuple[dict[str, str], bytes, int] | None:
    """Return what `sealed` was given; None if this is something else."""
    if names.SEALED not in properties:
        return None
    found = unseal(body)
    if found is None:
        return None
    inner, packing = found[0].get(_INNER), found[0].get(_PACKING)
    if not isinstance(inner, dict) or not isinstance(packing, int):
        return None
    if not all(isinstance(text, str) for text in inner.values()):
        return None
    merged = {**inner, **properties}
    del merged[names.SEALED]
    return merged, found[1], packing
