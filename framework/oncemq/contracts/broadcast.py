"""Contract of a subscription whose positions are in the app's database: of an instance that receives all, or of a group."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

QueuePlace = tuple[str, str]
"""A topic by its name on the broker, and a queue in it, in the adapter's words."""


class Positions(Protocol):
    """How far one instance, or one group, has read, kept in the app's database; for one consumer, from any thread.

    Every call raises BrokerUnavailable where the database does not answer.
    """

    def hold(self) -> str:
        """Be the one process that reads for some seconds more; returns who is it instead, and nothing if we are."""
        ...

    def leave(self) -> None:
        """Let another process go on at once."""
        ...

    def read(self, topic: str) -> Mapping[str, int]:
        """Return the position in each queue of a topic; empty for an instance or group that was never there."""
        ...

    def write(self, positions: Mapping[QueuePlace, int]) -> bool:
        """Store positions, all or none; returns whether we are the process that reads, else none is stored."""
        ...


@dataclass(frozen=True, slots=True)
class Broadcast:
    """One instance's share of a broadcast: all messages.

    Args:
        instance: its name, the same after a restart.
        positions: how far it has read.
    """

    instance: str
    positions: Positions = field(repr=False, compare=False)
