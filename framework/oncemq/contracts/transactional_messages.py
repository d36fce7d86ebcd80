"""Contract of brokers that hold a message until a database transaction has ended, and ask what became of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from oncemq.contracts.adapter import Adapter
from oncemq.message.envelope import OutgoingMessage


class Decision(StrEnum):
    """What became of the transaction that a held message depends on."""

    COMMIT = "commit"
    ROLL_BACK = "roll back"
    UNKNOWN = "unknown"
    """Not yet; the broker asks again."""


@dataclass(frozen=True, slots=True)
class Held:
    """A message that the broker holds until it is told what to do with it.

    Args:
        id: by which the broker asks about it; nobody else's.
        topic: the topic's name in the app.
        place: where it is held, in the adapter's own words; any process can finish it by this.
    """

    id: str
    topic: str
    place: str


class HeldMessages(Protocol):
    """Messages that consumers get if, and only if, somebody says so; safe for all threads."""

    def hold(self, topic: str, options: Mapping[str, Any], message: OutgoingMessage) -> Held:
        """Publish a message that nobody gets yet; returns when the broker has it.

        Raises:
            BrokerError: it may have it all the same, and then asks about it.
        """
        ...

    def finish(self, held: Held, *, commit: bool, again: bool = False) -> None:
        """Let consumers have it, or have it forgotten; `again`: it may have been said before.

        Raises:
            BrokerError: the broker does not know it yet; saying it again is allowed.
        """
        ...

    def close(self) -> None:
        """Disconnect; whatever is held stays so, until others are asked."""
        ...


class TransactionalAdapter(Adapter, Protocol):
    """What an adapter with `Capabilities.transactions` is, too."""

    def hold_messages(self, ledger: str, decide: Callable[[str], Decision]) -> HeldMessages:
        """Connect, and from now on answer what the broker asks about held messages.

        Args:
            ledger: only those are asked that hold messages for the same one.
            decide: returns what became of the transaction with this id; called in a thread that may wait.

        Raises:
            BrokerError: there is no connection, or we are not welcome.
        """
        ...
