"""Values that strategies and engine exchange: a `Unit` of deliveries, each `Run` that tries it, each `Item` in a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from oncemq.contracts.verdict import Verdict
from oncemq.message.envelope import Delivery, Envelope, Message, OutgoingMessage


class Unit:
    """One take of deliveries by a worker; lives through every run that failure isolation needs.

    Attributes:
        consumer: the scope of all ledger rows, `app.consumer`.
        deliveries: in arrival order.
        owner: a unique token; for locks and claims.
        deadline: monotonic seconds; items not started by then return to their queue.
        waited: seconds of waiting for transactions to begin while others wrote; not part of the unit's duration.
        verdicts: decisions of `reserve` before any transaction; those deliveries do not run.
        decided: verdicts of this unit's runs so far: of transactions that committed, and of items that run no more.
        notes: data that a strategy keeps for the whole unit, by strategy.
        savepoint_every: the number of items rolled back together when one fails after writing; None = all.
        guarded: a handler that sends statements itself has its own savepoint, and is rolled back alone.
        spoke: the number of handler calls that sent statements themselves.
        late: the number of those that failed.
        resume: called with a key, from any thread and at any time: its deferred messages may run again now.
    """

    __slots__ = (
        "_decode",
        "consumer",
        "deadline",
        "decided",
        "deliveries",
        "guarded",
        "late",
        "notes",
        "owner",
        "resume",
        "savepoint_every",
        "spoke",
        "verdicts",
        "waited",
    )

    def __init__(
        self,
        consumer: str,
        deliveries: Sequence[Delivery],
        deadline: float,
        *,
        decode: Callable[[Message], Any] | None = None,
        resume: Callable[[str], None] | None = None,
    ) -> None:
        self._decode = decode
        self.resume = resume or _no_sleeps
        self.consumer = consumer
        self.deliveries = deliveries
        self.deadline = deadline
        self.owner = uuid4().hex
        self.verdicts: dict[Delivery, Verdict] = {}
        self.decided: Mapping[Delivery, Verdict] = {}
        self.notes: dict[Any, Any] = {}
        self.waited = 0.0
        self.savepoint_every: int | None = None
        self.guarded = False
        self.spoke = 0
        self.late = 0

    def body(self, delivery: Delivery) -> Any:
        """Return a delivery's decoded body before any run has begun; do not modify it."""
        if delivery.payload is None and self._decode is not None:
            delivery.payload = self._decode(delivery.message)
        return delivery.payload


def _no_sleeps(key: str) -> None:
    """Ignore the key."""


class Item:
    """One message inside one run; a new run makes new items, so nothing leaks from a failed run.

    Attributes:
        payload: the decoded body; of this run only.
        verdict: None until decided.
        result: the handler's return value, or the stored result for a duplicate.
        wrote: its handler has sent statements that may have changed rows.
    """

    __slots__ = ("delivery", "envelope", "key", "payload", "result", "verdict", "wrote")

    def __init__(self, delivery: Delivery, envelope: Envelope, payload: Any) -> None:
        self.delivery = delivery
        self.envelope = envelope
        self.key = envelope.key
        self.payload = payload
        self.verdict: Verdict | None = None
        self.result: Any = None
        self.wrote = False

    def __repr__(self) -> str:
        return f"<Item {self.envelope.identity!r} {self.verdict!r}>"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message that a handler published in one run, or the cancellation of messages that were published for later.

    Args:
        topic: the topic's name in the app.
        message: the message to send; its id stays the same when it is sent again. Of a cancellation only the key and
            the id count, those of the messages to cancel.
        item: the item whose handler published it; None for a batch.
        cancels: it is a cancellation.
    """

    topic: str
    message: OutgoingMessage
    item: Item | None
    cancels: bool = False

    @property
    def waits(self) -> bool:
        """Whether the ledger keeps the message until it is due."""
        return self.message.due_at is not None and not self.message.timer


class Outbox(Protocol):
    """Stores messages that handlers of direct units published, together with a strategy's own record, then sends them."""

    def keep(self, connection: Connection, run: "Run") -> object:
        """Store the messages of the run's applied items; returns the argument of `send` for after the commit."""
        ...

    def send(self, stored: Any) -> None:
        """Send the stored messages, in a separate thread."""
        ...

    def postpone(self, consumer: str, outgoing: Sequence[Outgoing]) -> None:
        """Store messages for later, and delete cancelled ones, in a transaction of their own."""
        ...


class Run:
    """One try of a unit: one transaction, or for direct units one item without a transaction.

    Attributes:
        unit: the unit.
        items: in arrival order.
        notes: data that a strategy keeps in this run, by strategy.
        follow: deliveries to run after this run has committed (parked rows whose turn has come).
        wake: keys whose parked messages may be due now: those numbered from the given number on
            without a gap, or with None all without a number; filled in `record` or `save`.
        written: the number of statements of handlers that may have changed rows; when it grows, read again.
        outgoing: messages that handlers have published, in order, each with its item; None once the unit has ended.
        published: the same for a direct unit's strategy that stores them, once the handler has returned.
        outbox: where such a strategy stores them; None without a database.
    """

    __slots__ = (
        "_connection",
        "_session",
        "consumer",
        "follow",
        "items",
        "notes",
        "outbox",
        "outgoing",
        "published",
        "unit",
        "wake",
        "written",
    )

    def __init__(
        self,
        unit: Unit,
        items: Sequence[Item],
        connection: Connection | None = None,
        session: Session | None = None,
    ) -> None:
        self.unit = unit
        self.consumer = unit.consumer
        self.items = items
        self.notes: dict[Any, Any] = {}
        self.follow: list[Delivery] = []
        self.wake: dict[str, int | None] = {}
        self.outgoing: list[Outgoing] | None = []
        self.published: Sequence[Outgoing] = ()
        self.outbox: Outbox | None = None
        self.written = 0
        self._connection = connection
        self._session = session

    @property
    def direct(self) -> bool:
        """Whether this is one item of a direct unit, without an engine transaction."""
        return self._connection is None

    @property
    def connection(self) -> Connection:
        """The transaction's connection.

        Raises:
            LookupError: this is a direct run, which has no transaction.
        """
        if self._connection is None:
            raise LookupError("a direct run has no transaction: open one of your own")
        return self._connection

    @property
    def session(self) -> Session:
        """The session that handlers receive.

        Raises:
            LookupError: this is a direct run, which has no transaction.
        """
        if self._session is None:
            raise LookupError("a direct run has no session: open one of your own")
        return self._session

    @session.setter
    def session(self, session: Session) -> None:
        """Set the next handler's session; between handlers, the one that strategies may read with."""
        self._session = session
