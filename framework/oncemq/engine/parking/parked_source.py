"""The source "parked": messages that wait in the ledger, delivered when their turn has come and settled there."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine

from oncemq.common.clock import Clock
from oncemq.contracts.adapter import (
    Adapter,
    Confirmed,
    DeadLetterRequest,
    ParkedDeadLetter,
    Refused,
    RetryRequest,
    SettleFailed,
    Subscription,
)
from oncemq.engine.base.error_verdicts import describe
from oncemq.engine.base.overtaken import must_hold_key
from oncemq.errors import BrokerError, BrokerUnavailable, DeliveryVoid
from oncemq.ledger.messages import parking
from oncemq.ledger.messages.parked_row import Parked
from oncemq.ledger.records.row_mutexes import lock_keys
from oncemq.message import headers as names
from oncemq.message.envelope import Delivery, Envelope, Message
from oncemq.message.headers import PREFIX


class Waiting:
    """What waits for some keys, and what is about to.

    One identity is not enough to call a message a copy: where the key is the identity, or a strategy tells a key's
    messages apart by something else, the second one would be acknowledged and lost. Whether two that are kept here
    are one and the same is for the strategies to decide, when their turn has come.

    Args:
        connection: the transaction.
        consumer: the ledger scope.
        keys: the only ones that are asked about.
    """

    def __init__(self, connection: Connection, consumer: str, keys: Collection[str]) -> None:
        self._connection = connection
        self._consumer = consumer
        self._identities = parking.waiting(connection, consumer, keys)
        self._added: dict[tuple[str, str], list[Message]] = {}

    def count(self, key: str) -> int:
        """Return how many messages of a key wait."""
        return len(self._identities.get(key, ()))

    def has(self, envelope: Envelope, message: Message) -> bool:
        """Return whether a copy of this message waits."""
        key, identity = envelope.key, envelope.identity
        if identity not in self._identities.get(key, ()):
            return False
        stored = parking.messages(self._connection, self._consumer, key, identity)
        return any(_same(message, other) for other in [*stored, *self._added.get((key, identity), ())])

    def add(self, envelope: Envelope, message: Message) -> None:
        """Note that this message waits from now on."""
        self._identities.setdefault(envelope.key, []).append(envelope.identity)
        self._added.setdefault((envelope.key, envelope.identity), []).append(message)


def _same(one: Message, other: Message) -> bool:
    return (one.body, one.message_id, one.keys, _own_headers(one)) == (
        other.body,
        other.message_id,
        other.keys,
        _own_headers(other),
    )


def _own_headers(message: Message) -> dict[str, str]:
    """Return what its producer wrote; ours change with every try."""
    return {name: text for name, text in message.headers.items() if not name.startswith(PREFIX)}


Part = TypeVar("Part", RetryRequest, DeadLetterRequest)

LEASE: Final = timedelta(seconds=5)
"""For so long a message that was taken is left to whoever took it; two who run it are no harm, only work."""
HELD_AT_ONCE: Final = 32
"""Messages of a key that have their turn together: when one of them fails, those behind it were taken for nothing."""
_BURIAL: Final = timedelta(minutes=1)
_SWEEP: Final = 200


@dataclass(frozen=True, slots=True)
class Ticket:
    """Which row a delivery stands for.

    Args:
        id: the row's.
        held: it is one of those that wait for earlier messages of their key.
        token: `due_at` when it was taken.
    """

    id: int
    held: bool
    token: datetime | None


class ParkedMessages:
    """What waits for one consumer.

    Args:
        consumer: the ledger scope.
        engine: the app's database.
        clock: where time comes from.
        adapter: takes dead letters.
        subscription: whose dead letters those are.
        understand: fills in a delivery's envelope, key and payload.
        queued: returns what waits for this process's workers; each of them will decide about it.
        running: returns what they hold.
    """

    def __init__(
        self,
        consumer: str,
        engine: Engine,
        clock: Clock,
        adapter: Adapter,
        subscription: Subscription,
        understand: Callable[[Delivery], None],
        queued: Callable[[], Iterable[Delivery]] = tuple,
        running: Callable[[], Iterable[Delivery]] = tuple,
    ) -> None:
        self.consumer = consumer
        self._engine = engine
        self.clock = clock
        self._adapter = adapter
        self._subscription = subscription
        self._understand = understand
        self._queued = queued
        self._running = running

    # Taking

    def take(self, connection: Connection, ids: Sequence[int], *, doubtful: bool = False) -> list[Delivery]:
        """Lease rows and return their deliveries, in order; `doubtful` ones may have killed a process."""
        rows = parking.take(connection, ids, self.clock.now() + LEASE)
        return [self._delivery(row, doubtful=doubtful) for row in rows]

    def sweep(self, connection: Connection) -> list[Delivery]:
        """Take what is due: its pause is over, or whoever had taken it is gone.

        What this process has in hand is left out, however long that takes: a second delivery of it would take the
        row from the first one, whose failure would then neither count nor be waited for.
        """
        # In this order: what is taken from the queue meanwhile is in both.
        ours = self.queued() | self._rows(self._running())
        ids = parking.due(connection, self.consumer, self.clock.now(), _SWEEP, ours)
        return self.take(connection, ids, doubtful=True)

    def queued(self) -> set[int]:
        """Return the rows whose deliveries wait for this process's workers."""
        return self._rows(self._queued())

    def _rows(self, deliveries: Iterable[Delivery]) -> set[int]:
        return {one.token.id for one in deliveries if one.source is self}

    def _delivery(self, row: Parked, *, doubtful: bool) -> Delivery:
        message = replace(row.message, redelivered=True) if doubtful else row.message
        delivery = Delivery(message, Ticket(row.id, row.held, row.due_at), source=self)
        # Behind an earlier message it waited for that one, not yet for its turn.
        delivery.parked_at = None if row.held else row.parked_at
        self._understand(delivery)
        return delivery

    def count(self) -> int:
        """Return how many messages wait."""
        with self._engine.connect() as connection:
            return parking.count(connection, self.consumer)

    # Settling

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Do nothing: the rows were deleted in the transaction that applied them."""
        del deliveries
        return ()

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Let these stay parked until their pause is over."""
        return self._each(later, self._stay)

    def hold(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Keep messages of the broker's that failed, at the head of their keys, until their pause is over."""
        return self._each(later, self._keep)

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Publish these as dead letters and remove their rows once that is confirmed."""
        failed = self._each(dead, self._claim)
        lost = {one.delivery for one in failed}
        mine = [one for one in dead if one.delivery not in lost]
        answers = self._bury([ParkedDeadLetter(one.delivery.message, one.headers) for one in mine])
        buried: list[DeadLetterRequest] = []
        for one, answer in zip(mine, answers, strict=True):
            if isinstance(answer, Refused):
                failed.append(SettleFailed(one.delivery, answer.error))
            else:
                buried.append(one)
        return [*failed, *self._each(buried, self._end)]

    def _bury(self, burials: Sequence[ParkedDeadLetter]) -> Sequence[Confirmed | Refused]:
        try:
            return self._adapter.publish_dead_letters(self._subscription, burials) if burials else ()
        except BrokerError as error:
            return [Refused(error)] * len(burials)

    def discard(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Remove what is kept as a dead letter elsewhere."""
        return self._each(dead, self._end)

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Let others take at once what was never started."""
        return self._each([RetryRequest(one, timedelta(0), {}) for one in deliveries], self._return)

    def lock(self, connection: Connection, keys: Sequence[str]) -> None:
        """Hold the mutex of keys that have messages which wait for each other."""
        lock_keys(connection, f"{self.consumer} held", keys, at=self.clock.now())

    def _stay(self, connection: Connection, later: RetryRequest) -> bool:
        ticket: Ticket = later.delivery.token
        message = _grown(later.delivery.message, later.headers)
        due_at = self.clock.now() + later.delay
        early = ticket.held and not must_hold_key(later.headers)
        if early:
            self.lock(connection, [later.delivery.key])
        ours = parking.renew(connection, ticket.id, ticket.token, due_at, message, free=early)
        if ours and early:
            self._let_follow(connection, later.delivery.key)
        return ours

    def _return(self, connection: Connection, later: RetryRequest) -> bool:
        ticket: Ticket = later.delivery.token
        return parking.renew(connection, ticket.id, ticket.token, self.clock.now())

    def _keep(self, connection: Connection, later: RetryRequest) -> bool:
        delivery, now = later.delivery, self.clock.now()
        key, envelope = delivery.key, delivery.envelope
        if envelope is None:
            return False
        self.lock(connection, [key])
        if not Waiting(connection, self.consumer, [key]).has(envelope, delivery.message):
            message = _grown(delivery.message, later.headers)
            reason, due_at = later.headers.get(names.ERROR_TEXT, ""), now + later.delay
            row = Parked(0, key, envelope.identity, None, True, message, reason, now, due_at)
            parking.add(connection, self.consumer, [row])
        return True

    def _claim(self, connection: Connection, dead: DeadLetterRequest) -> bool:
        """Make sure that nobody else buries it, too, for as long as that may take."""
        delivery, until = dead.delivery, self.clock.now() + _BURIAL
        ticket: Ticket = delivery.token
        ours = parking.renew(connection, ticket.id, ticket.token, until)
        if ours:
            delivery.token = replace(ticket, token=until)
        return ours

    def _end(self, connection: Connection, dead: DeadLetterRequest) -> bool:
        """Remove the row; whatever was held behind it has its turn."""
        key = dead.delivery.key
        ticket: Ticket = dead.delivery.token
        if ticket.held:
            self.lock(connection, [key])
        parking.remove(connection, [ticket.id])
        if ticket.held:
            self._let_follow(connection, key)
        return True

    def _let_follow(self, connection: Connection, key: str) -> None:
        """Give the next of those that are held their turn."""
        left = parking.held(connection, self.consumer, [key], HELD_AT_ONCE)
        parking.postpone(connection, left.get(key, ()), self.clock.now())

    def _each(self, parts: Sequence[Part], work: Callable[[Connection, Part], bool]) -> list[SettleFailed]:
        """Do `work` for each in a transaction of its own; it returns whether the row was still ours."""
        failed: list[SettleFailed] = []
        for part in parts:
            try:
                with self._engine.begin() as connection:
                    ours = work(connection, part)
            except Exception as error:
                # As for a broker that is away: whoever settles tries again.
                text = f"the ledger, where {part.delivery!r} is parked, cannot be written: {describe(error)}"
                away = BrokerUnavailable(text)
                away.__cause__ = error
                failed.append(SettleFailed(part.delivery, away))
                continue
            if not ours:
                gone = DeliveryVoid(f"{part.delivery!r} is not ours any more: another process has it")
                failed.append(SettleFailed(part.delivery, gone))
        return failed


def _grown(message: Message, added: Mapping[str, str]) -> Message:
    """Return the message with the headers that its next try shall see."""
    headers = {**message.headers, **added}
    return replace(
        message,
        headers=headers,
        attempt=names.attempt_of(headers),
        redelivered=False,
        first_failed_at=names.time_of(headers, names.FIRST_FAILED_AT) or message.first_failed_at,
    )
