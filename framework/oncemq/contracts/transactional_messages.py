"""Contract of brokers that hold a message until a database transaction has ended, and query its outcome."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from oncemq.contracts.adapter import Adapter
from oncemq.message.envelope import OutgoingMessage


class Decision(StrEnum):
    """Outcome of the transaction that a held message depends on."""

    COMMIT = "commit"
    ROLL_BACK = "roll back"
    UNKNOWN = "unknown"
    """Not decided yet; the broker asks again."""


@dataclass(frozen=True, slots=True)
class Held:
    """A message that the broker holds until it is committed or discarded.

    Args:
        id: the unique id by which the broker asks about it.
        topic: the topic's name in the app.
        place: its location, in the adapter's own format; any process can finish it by this.
    """

    id: str
    topic: str
    place: str


class HeldMessages(Protocol):
    """Messages that consumers receive only after `finish` with `commit`; thread-safe."""

    def hold(self, topic: str, options: Mapping[str, Any], message: OutgoingMessage) -> Held:
        """Publish a message that no consumer receives yet; returns when the broker has it.

        Raises:
            BrokerError: the broker may have it nevertheless, and then asks about it.
        """
        ...

    def finish(self, held: Held, *, commit: bool, again: bool = False) -> None:
        """Release it to consumers, or discard it; `again`: this may have been requested before.

        Raises:
            BrokerError: the broker does not know it yet; the call may be repeated.
        """
        ...

    def close(self) -> None:
        """Disconnect; held messages stay held until other processes are asked."""
        ...


class TransactionalAdapter(Adapter, Protocol):
    """Optional protocol of an adapter with `Capabilities.transactions`."""

    def hold_messages(self, ledger: str, decide: Callable[[str], Decision]) -> HeldMessages:
        """Connect, and from now on answer the broker's queries about held messages.

        Args:
            ledger: queries go only to processes that hold messages for the same ledger.
            decide: returns the outcome of the transaction with this id; called in a thread that may block.

        Raises:
            BrokerError: there is no connection, or the broker refuses it.
        """
        ...
