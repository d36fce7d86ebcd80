"""Source "parked": messages that wait in the ledger, delivered when their turn has come and settled there."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeVar

from sqlalchemy import ColumnElement, Connection, Dialect, Engine
from sqlalchemy.exc import DBAPIError

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
from oncemq.ledger.messages import held_letters, parking
from oncemq.ledger.messages.parked_row import Parked
from oncemq.ledger.messages.parking import HELD_AT_ONCE
from oncemq.message import headers as names
from oncemq.message.envelope import Delivery, Envelope, Message
from oncemq.message.headers import PREFIX
from oncemq.retry.classify import Fault, classify


class Waiting:
    """Messages that wait for some keys, or are about to.

    Equal identity does not prove that a message is a copy: where the key is the identity, or a strategy distinguishes a
    key's messages otherwise, the second one would be acknowledged and lost. The strategies decide whether two messages
    kept here are the same, when their turn has come.

    Args:
        connection: the transaction.
        consumer: the ledger scope.
        keys: the only keys that are queried.
    """

    def __init__(self, connection: Connection, consumer: str, keys: Collection[str]) -> None:
        self._connection = connection
        self._consumer = consumer
        self._identities = parking.waiting(connection, consumer, keys)
        self._added: dict[tuple[str, str], list[Message]] = {}

    def count(self, key: str) -> int:
        """Return the number of waiting messages of a key."""
        return len(self._identities.get(key, ()))

    def has(self, envelope: Envelope, message: Message) -> bool:
        """Return whether a copy of this message is waiting."""
        return self.has_copy(envelope.key, envelope.identity, message)

    def has_copy(self, key: str, identity: str, message: Message) -> bool:
        """Return whether a copy of this message is waiting, of which key and identity are known."""
        if identity not in self._identities.get(key, ()):
            return False
        stored = parking.messages(self._connection, self._consumer, key, identity)
        return any(_same(message, other) for other in [*stored, *self._added.get((key, identity), ())])

    def add(self, envelope: Envelope, message: Message) -> None:
        """Record that this message waits from now on."""
        self._identities.setdefault(envelope.key, []).append(envelope.identity)
        self._added.setdefault((envelope.key, envelope.identity), []).append(message)


def _same(first: Message, other: Message) -> bool:
    return (first.body, first.message_id, first.keys, _own_headers(first)) == (
        other.body,
        other.message_id,
        other.keys,
        _own_headers(other),
    )


def _own_headers(message: Message) -> dict[str, str]:
    """Return the producer's headers; ours change with every attempt."""
    return {name: text for name, text in message.headers.items() if not name.startswith(PREFIX)}


Part = TypeVar("Part", RetryRequest, DeadLetterRequest)

LEASE: Final = timedelta(seconds=5)
"""How long a taken message is left to the process that took it; running it twice is harmless, but extra work."""
_BURIAL: Final = timedelta(minutes=1)
_SWEEP: Final = 200


@dataclass(frozen=True, slots=True)
class Ticket:
    """The row behind a delivery.

    Args:
        id: the row's id.
        held: it waits for earlier messages of its key.
        token: `due_at` at the time it was taken.
    """

    id: int
    held: bool
    token: datetime | None


class ParkedMessages:
    """Parked messages of one consumer.

    Args:
        consumer: the ledger scope.
        engine: the app's database.
        clock: the source of time.
        adapter: publishes dead letters.
        subscription: the subscription of those dead letters.
        understand: fills in a delivery's envelope, key and payload.
        queued: returns the deliveries waiting for this process's workers; each of them will be decided.
        running: returns the deliveries held by workers.
        topic: takes only messages of this topic, whose consumer has others, too; None = all.
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
        topic: str | None = None,
    ) -> None:
        self.consumer = consumer
        self._engine = engine
        self.clock = clock
        self._adapter = adapter
        self._subscription = subscription
        self._understand = understand
        self._queued = queued
        self._running = running
        self._topic = topic

    @property
    def name(self) -> str:
        """Return what tells its background tasks from those of other consumers and topics."""
        return self.consumer if self._topic is None else f"{self.consumer}/{self._topic}"

    # Taking

    def take(self, connection: Connection, ids: Sequence[int], *, doubtful: bool = False) -> list[Delivery]:
        """Lease rows and return their deliveries, in order; `doubtful` ones may have killed a process.

        Those of another topic are due at once: the consumer of that topic reads them as its broker's and settles them there.
        """
        if self._topic is not None and (others := parking.in_other_topics(connection, ids, self._topic)):
            now = self.clock.now()
            parking.wake(connection, others, now, now + LEASE)
            ids = [id_ for id_ in ids if id_ not in others]
        rows = parking.take(connection, ids, self.clock.now() + LEASE)
        return [self._delivery(row, doubtful=doubtful) for row in rows]

    def sweep(self, connection: Connection) -> list[Delivery]:
        """Take due messages: their pause is over, or the process that had taken them is gone.

        Messages held by this process are left out, for as long as they take: a second delivery would take the
        row from the first, whose failure would then neither count nor be waited for.
        """
        # In this order: deliveries taken from the queue meanwhile are in both.
        ours = self.queued() | self._rows(self._running())
        ids = parking.due(connection, self.consumer, self.clock.now(), _SWEEP, ours, self._topic)
        return self.take(connection, ids, doubtful=True)

    def any_due(self, dialect: Dialect) -> ColumnElement[bool]:
        """Return the condition under which `sweep` may find messages."""
        return parking.due_exists(dialect, self.consumer, self.clock.now(), self._topic)

    def queued(self) -> set[int]:
        """Return the rows whose deliveries wait for this process's workers."""
        return self._rows(self._queued())

    def _rows(self, deliveries: Iterable[Delivery]) -> set[int]:
        return {delivery.token.id for delivery in deliveries if delivery.source is self}

    def _delivery(self, row: Parked, *, doubtful: bool) -> Delivery:
        message = replace(row.message, redelivered=True) if doubtful else row.message
        delivery = Delivery(message, Ticket(row.id, row.held, row.due_at), source=self)
        # Behind an earlier message it waited for that message, not yet for its turn.
        delivery.parked_at = None if row.held else row.parked_at
        self._understand(delivery)
        return delivery

    def count(self) -> int:
        """Return the number of waiting messages."""
        with self._engine.connect() as connection:
            return parking.count(connection, self.consumer, self._topic)

    # Settling

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Do nothing: the rows were deleted in the transaction that applied them."""
        del deliveries
        return ()

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Keep these parked until their pause is over."""
        return self._each(later, self._stay)

    def hold(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Park failed messages of the broker at the head of their keys, until their pause is over."""
        return self._each(later, self._keep)

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Publish these as dead letters and remove their rows once that is confirmed."""
        failed = self._each(dead, self._claim)
        lost = {part.delivery for part in failed}
        mine = [part for part in dead if part.delivery not in lost]
        answers = self._bury([ParkedDeadLetter(part.delivery.message, part.headers) for part in mine])
        buried: list[DeadLetterRequest] = []
        for part, answer in zip(mine, answers, strict=True):
            if isinstance(answer, Refused):
                failed.append(SettleFailed(part.delivery, answer.error))
            else:
                buried.append(part)
        return [*failed, *self._each(buried, self._end)]

    def _bury(self, burials: Sequence[ParkedDeadLetter]) -> Sequence[Confirmed | Refused]:
        try:
            return self._adapter.publish_dead_letters(self._subscription, burials) if burials else ()
        except BrokerError as error:
            return [Refused(error)] * len(burials)

    def hold_dead(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Keep these as dead letters that hold their keys, in one transaction each; what cannot ever be stored has its own error."""
        failed: list[SettleFailed] = []
        lost: set[str] = set()
        for part in dead:
            key = part.delivery.known_key
            if key in lost:
                before = BrokerUnavailable(f"an earlier dead letter of key {key!r} is not stored yet")
                failed.append(SettleFailed(part.delivery, before))
                continue
            failed += (wrong := self._each([part], self._keep_dead, insists=False))
            if any(isinstance(each.error, BrokerUnavailable) for each in wrong):
                lost.add(key)
        return failed

    def discard(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Remove rows whose dead letter is kept elsewhere."""
        return self._each(dead, self._end)

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Release deliveries that were never started, available to others at once."""
        return self._each([RetryRequest(delivery, timedelta(0), {}) for delivery in deliveries], self._return)

    def lock(self, connection: Connection, keys: Sequence[str]) -> None:
        """Lock the mutex of keys whose messages wait for each other."""
        held_letters.lock(connection, self.consumer, keys, self.clock.now())

    def _stay(self, connection: Connection, later: RetryRequest) -> bool:
        ticket: Ticket = later.delivery.token
        message = grown(later.delivery.message, later.headers)
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
            message = grown(delivery.message, later.headers)
            reason, due_at = later.headers.get(names.ERROR_TEXT, ""), now + later.delay
            row = Parked(0, key, envelope.identity, None, True, message, reason, now, due_at)
            parking.add(connection, self.consumer, [row])
        return True

    def _keep_dead(self, connection: Connection, dead: DeadLetterRequest) -> bool:
        delivery, now, key = dead.delivery, self.clock.now(), dead.delivery.known_key
        why, message = dead.headers.get(names.ERROR_TEXT, ""), delivery.message
        told = replace(message, headers={**message.headers, **dead.headers})
        held_letters.lock(connection, self.consumer, [key], now)
        if delivery.source is self:
            ticket: Ticket = delivery.token
            return held_letters.mark(connection, ticket.id, ticket.token, told, why)
        identity = delivery.envelope.identity if delivery.envelope is not None else ""
        if not Waiting(connection, self.consumer, [key]).has_copy(key, identity, message):
            row = Parked(0, key, identity, None, True, told, why, now, parking.DEAD)
            parking.add(connection, self.consumer, [row])
        return True

    def _claim(self, connection: Connection, dead: DeadLetterRequest) -> bool:
        """Make sure that no other process dead-letters it for as long as that may take."""
        delivery, until = dead.delivery, self.clock.now() + _BURIAL
        ticket: Ticket = delivery.token
        ours = parking.renew(connection, ticket.id, ticket.token, until)
        if ours:
            delivery.token = replace(ticket, token=until)
        return ours

    def _end(self, connection: Connection, dead: DeadLetterRequest) -> bool:
        """Remove the row; messages held behind it have their turn."""
        key = dead.delivery.key
        ticket: Ticket = dead.delivery.token
        if ticket.held:
            self.lock(connection, [key])
        parking.remove(connection, [ticket.id])
        if ticket.held:
            self._let_follow(connection, key)
        return True

    def _let_follow(self, connection: Connection, key: str) -> None:
        """Make the next held messages due."""
        left = parking.held(connection, self.consumer, [key], HELD_AT_ONCE, until_dead=True)
        parking.postpone(connection, left.get(key, ()), self.clock.now())

    def _each(
        self, parts: Sequence[Part], work: Callable[[Connection, Part], bool], *, insists: bool = True
    ) -> list[SettleFailed]:
        """Do `work` for each in a separate transaction; it returns whether the row was still ours."""
        failed: list[SettleFailed] = []
        for part in parts:
            try:
                with self._engine.begin() as connection:
                    ours = work(connection, part)
            except Exception as error:
                if not insists and _is_its_own(error):
                    failed.append(SettleFailed(part.delivery, error))
                    continue
                # As for an unavailable broker: the caller retries.
                text = f"the ledger, where {part.delivery!r} is parked, cannot be written: {describe(error)}"
                away = BrokerUnavailable(text)
                away.__cause__ = error
                failed.append(SettleFailed(part.delivery, away))
                continue
            if not ours:
                gone = DeliveryVoid(
                    f"{part.delivery!r} is no longer leased to this process: another process has it"
                )
                failed.append(SettleFailed(part.delivery, gone))
        return failed


def _is_its_own(error: Exception) -> bool:
    """Return whether no other time would help: the message itself cannot be stored."""
    return classify(error) is Fault.DATA or not isinstance(error, DBAPIError)


def grown(message: Message, added: Mapping[str, str]) -> Message:
    """Return the message with the headers for its next attempt."""
    headers = {**message.headers, **added}
    return replace(
        message,
        headers=headers,
        attempt=names.attempt_of(headers),
        redelivered=False,
        first_failed_at=names.time_of(headers, names.FIRST_FAILED_AT) or message.first_failed_at,
    )
