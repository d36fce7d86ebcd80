"""Routes to the server of a key: the only difference between Redis clients.

Commands use borrowed connections, not the clients' own `execute_command`, which sends a command again when its
answer is lost: a lock would be counted twice.
"""

import binascii
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

SLOTS = 16384


class Routes(ABC):
    """Servers and connections; thread-safe. A place is a server's `host:port`.

    Attributes:
        clustered: keys are spread over several servers, by their slots.
    """

    clustered: bool = False

    @abstractmethod
    def place(self, slot: int) -> str:
        """Return the place of the slot's master."""

    @abstractmethod
    def masters(self) -> Sequence[str]:
        """Return the places of all masters."""

    def knows(self, place: str) -> bool:
        """Return whether connections to `place` can be borrowed: a server may name a place that no map shows yet."""
        return place in self.masters()

    @abstractmethod
    def borrow(self, place: str) -> Any:
        """Return a connection from the place's pool; it is connected with the first command at the latest."""

    @abstractmethod
    def give_back(self, place: str, connection: Any) -> None:
        """Return a borrowed connection; the caller disconnects a broken one first."""

    def leave(self, place: str) -> None:  # noqa: B027 - a cluster's map names the new server
        """Close idle connections to the place: its name may resolve to another server by now."""

    @abstractmethod
    def own(self, place: str) -> Any:
        """Return a new connection that is never shared, for subscriptions; the caller disconnects it."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect all connections that were opened for these routes."""

    @abstractmethod
    def refresh(self) -> None:
        """Reload the slot map."""


def slot_of(key: str) -> int:
    """Return the slot of `key`: CRC-16 (XMODEM) of its first non-empty `{tag}`, else of the whole key."""
    start = key.find("{")
    end = key.find("}", start + 1) if start >= 0 else -1
    hashed = key[start + 1 : end] if end > start + 1 else key
    return binascii.crc_hqx(hashed.encode(), 0) % SLOTS
