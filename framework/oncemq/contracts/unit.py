"""The values strategies and engine exchange: a `Unit` of deliveries, each `Run` that tries it, each `Item` in a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from oncemq.contracts.verdict import Verdict
from oncemq.message.envelope import Delivery, Envelope, Message, OutgoingMessage


class Unit:
    """One take of deliveries by a worker; lives through every run that the rescue needs.

    Attributes:
        consumer: the scope of all ledger rows, `app.consumer`.
        deliveries: in arrival order.
        owner: a token nobody else has; for locks and claims.
        deadline: monotonic seconds; items not started by then go back to their queue.
        waited: seconds until transactions began, where others were writing; no measure of the unit's size.
        verdicts: what `reserve` decided before any transaction; those deliveries do not run.
        notes: what a strategy wants to remember for the whole unit, by strategy.
        savepoint_every: so many items are undone together when one fails after writing; None = all.
        guarded: a handler that sends statements itself has a savepoint of its own, and is undone alone.
        spoke: how many calls of handlers have sent statements themselves.
        late: how many of those failed.
        resume: called with a key, from any thread and at any time: its deferred messages need not sleep any longer.
    """

    __slots__ = (
        "_decode",
        "consumer",
        "deadline",
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
        self.resume = resume or _nobody_sleeps
        self.consumer = consumer
        self.deliveries = deliveries
        self.deadline = deadline
        self.owner = uuid4().hex
        self.verdicts: dict[Delivery, Verdict] = {}
        self.notes: dict[Any, Any] = {}
        self.waited = 0.0
        self.savepoint_every: int | None = None
        self.guarded = False
        self.spoke = 0
        self.late = 0

    def body(self, delivery: Delivery) -> Any:
        """Return a delivery's decoded body before any run has begun; it is not to be changed."""
        if delivery.payload is None and self._decode is not None:
            delivery.payload = self._decode(delivery.message)
        return delivery.payload


def _nobody_sleeps(key: str) -> None:
    """Ignore the key."""


class Item:
    """One message inside one run; a re-run makes new items, so nothing leaks from a failed try.

    Attributes:
        payload: the decoded body; of this run alone.
        verdict: None until decided.
        result: what the handler returned, or the stored result that a duplicate is given.
    """

    __slots__ = ("delivery", "envelope", "key", "payload", "result", "verdict")

    def __init__(self, delivery: Delivery, envelope: Envelope, payload: Any) -> None:
        self.delivery = delivery
        self.envelope = envelope
        self.key = envelope.key
        self.payload = payload
        self.verdict: Verdict | None = None
        self.result: Any = None

    def __repr__(self) -> str:
        return f"<Item {self.envelope.identity!r} {self.verdict!r}>"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What a handler published in one run.

    Args:
        topic: the topic's name in the app.
        message: what is to be sent; its id stays the same however often it is sent.
        item: the item whose handler published it; None where a batch did.
    """

    topic: str
    message: OutgoingMessage
    item: Item | None


class Outbox(Protocol):
    """Keeps what the handlers of direct units published, together with a strategy's own record, and sends it then."""

    def keep(self, connection: Connection, run: "Run") -> object:
        """Store what the run's applied items published; returns what `send` needs, once the transaction is durable."""
        ...

    def send(self, stored: Any) -> None:
        """Send what was stored, from a thread of its own."""
        ...


class Run:
    """One try of a unit: one transaction, or for direct units one item without any.

    Attributes:
        unit: what is being tried.
        items: in arrival order.
        notes: what a strategy wants to remember in this run, by strategy.
        follow: deliveries that shall run after this one committed (parked rows whose turn has come).
        wake: keys whose parked messages may have their turn now: those numbered from the given number on
            without a gap, or with None all without a number; filled in `record` or `save`.
        written: how many statements handlers have sent that may have changed rows; where it grows, look again.
        outgoing: what handlers have published, in order, each with its item; None once the unit is over.
        published: the same for the strategy of a direct unit that stores it, once the handler has returned.
        outbox: where such a strategy stores it; None where there is no database.
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
        """Whether this is one item of a direct unit, without a transaction of ours."""
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
        """The session that handlers are given.

        Raises:
            LookupError: this is a direct run, which has no transaction.
        """
        if self._session is None:
            raise LookupError("a direct run has no session: open one of your own")
        return self._session

    @session.setter
    def session(self, session: Session) -> None:
        """Set what the next handler is given; between handlers, what strategies may read with."""
        self._session = session
