"""Maps a key to its shard: the same in every process and every version.

A key's slot is `int.from_bytes(sha256(key in UTF-8)[:8], "big") % 1024`; every slot belongs to one shard. By
default shard i of n has the slots s with s * n // 1024 == i, which are contiguous.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

SLOTS = 1024


def slot_of(key: str) -> int:
    """Return the slot of a key, from 0 to 1023."""
    return int.from_bytes(sha256(key.encode()).digest()[:8], "big") % SLOTS


@dataclass(frozen=True, slots=True)
class Layout:
    """Assignment of slots to shards.

    Args:
        owners: the shard number of each slot, counted from 0.
        chosen: configured explicitly; otherwise derived from the number of shards.
    """

    owners: tuple[int, ...]
    chosen: bool = False

    @classmethod
    def even(cls, shards: int) -> "Layout":
        """Return the default layout for this number of shards."""
        return cls(tuple(slot * shards // SLOTS for slot in range(SLOTS)))

    @classmethod
    def of(cls, slots: Sequence[str]) -> "Layout":
        """Return the layout in which shard i has the slots `slots[i]`, such as `0-340, 1000-1023`.

        Raises:
            ValueError: a slot has no shard or two, or does not exist; says which.
        """
        owners: list[int | None] = [None] * SLOTS
        for shard, text in enumerate(slots):
            for slot in _parsed(text):
                other = owners[slot]
                if other is not None:
                    raise ValueError(f"slot {slot} is given to shard {other} and to shard {shard}")
                owners[slot] = shard
        missing = [slot for slot, owner in enumerate(owners) if owner is None]
        if missing:
            raise ValueError(f"slots {_shown(missing)} belong to no shard")
        return cls(tuple(owner for owner in owners if owner is not None), chosen=True)

    @property
    def shards(self) -> int:
        """Number of shards."""
        return max(self.owners) + 1

    def shard_of(self, key: str) -> int:
        """Return the number of the shard that a key and all its messages belong to."""
        return self.owners[slot_of(key)]

    def slots(self, shard: int) -> str:
        """Return the slots of a shard as they are written in the configuration."""
        return _shown([slot for slot, owner in enumerate(self.owners) if owner == shard])


def _parsed(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = (word.strip() for word in part.partition("-"))
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise ValueError(f"{text!r} names no slots: write them like 0-340, 1000-1023")
        begin, end = int(first), int(last or first)
        if not begin <= end < SLOTS:
            raise ValueError(f"{part.strip()!r} is not a range of slots: they go from 0 to {SLOTS - 1}")
        found += range(begin, end + 1)
    return found


def _shown(slots: Sequence[int]) -> str:
    ranges: list[list[int]] = []
    for slot in slots:
        if ranges and slot == ranges[-1][1] + 1:
            ranges[-1][1] = slot
        else:
            ranges.append([slot, slot])
    return ", ".join(f"{first}-{last}" if first < last else f"{first}" for first, last in ranges)
