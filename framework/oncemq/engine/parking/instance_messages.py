"""Retries and dead letters of one instance of a broadcast consumer: both are in the ledger.

A broker has no place that belongs to an instance: a retry in the group's queue would go to any of them. So what failed waits
here, with its attempts, also over a restart; the row is written before the broker's message is acknowledged, and
removed after the message took effect. In transactions of the handler that is one step, as with every parked message.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

from sqlalchemy import Connection

from oncemq.common.error_text import describe
from oncemq.contracts.adapter import (
    Adapter,
    DeadLetter,
    DeadLetterRequest,
    RetryRequest,
    SettleFailed,
    Settling,
)
from oncemq.contracts.checks import Effects
from oncemq.engine.base.overtaken import must_hold_key
from oncemq.engine.parking.parked_source import ParkedMessages, Ticket, Waiting, grown
from oncemq.engine.parking.settlement_router import FULL, HoldingRouter, settling, told
from oncemq.engine.parking.sharded import ParkingPlace
from oncemq.engine.plan import ConsumerPlan
from oncemq.errors import MessageRefused
from oncemq.ledger.database.server_clock import server_time
from oncemq.ledger.messages import dead_letters, parking
from oncemq.ledger.messages.parked_row import Parked
from oncemq.message import headers as names
from oncemq.message.envelope import Delivery
from oncemq.message.reader import Reader
from oncemq.observe.observers import Observers

REPLAYED: Final = "replayed"


class InstanceMessages(ParkedMessages):
    """The same for an instance, whose dead letters are rows of the ledger, too."""

    def remove(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Remove rows of messages that took effect outside the database."""
        return self._each([RetryRequest(each, timedelta(0), {}) for each in deliveries], self._remove)

    def keep(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Store failed messages of the broker until their pause is over; other messages of their keys do not wait."""
        return self._each(later, self._wait)

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Store dead letters; rows of retries become dead letters in one transaction."""
        return self._each(dead, self._bury_here)

    def _remove(self, connection: Connection, done: RetryRequest) -> bool:
        parking.remove(connection, [done.delivery.token.id])
        return True

    def _wait(self, connection: Connection, later: RetryRequest) -> bool:
        delivery, now, envelope = later.delivery, self.clock.now(), later.delivery.envelope
        if envelope is None:
            return False
        if not Waiting(connection, self.consumer, [delivery.key]).has(envelope, delivery.message):
            message = grown(delivery.message, later.headers)
            reason, due_at = later.headers.get(names.ERROR_TEXT, ""), now + later.delay
            row = Parked(0, delivery.key, envelope.identity, None, False, message, reason, now, due_at)
            parking.add(connection, self.consumer, [row])
        return True

    def _bury_here(self, connection: Connection, dead: DeadLetterRequest) -> bool:
        delivery, now = dead.delivery, self.clock.now()
        if delivery.source is self:
            ticket: Ticket = delivery.token
            if not parking.renew(connection, ticket.id, ticket.token, now):
                return False
            self._end(connection, dead)
        dead_letters.add(connection, self.consumer, delivery.message, dead.headers, now)
        return True


class InstanceSettling:
    """Settles an instance's deliveries: the broker is only told that they are done, or not started.

    Args:
        broker: acknowledges and takes back its own.
        messages: retries and dead letters.
        hold_key: while a message is retried, later ones of its key wait.
        removes: rows are removed when their message is acknowledged; otherwise in the transaction that applied it.
    """

    def __init__(self, broker: Adapter, messages: InstanceMessages, *, hold_key: bool, removes: bool) -> None:
        self._broker = broker
        self._messages = messages
        self._hold_key = hold_key
        self._removes = removes

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Finish these."""
        own, others = self._split(deliveries)
        failed = told(self._messages.remove, own) if self._removes else ()
        return [*failed, *told(self._broker.acknowledge, others)]

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Store these until their pause is over, then acknowledge the broker's."""
        own = [part for part in later if part.delivery.source is self._messages]
        others = [part for part in later if part.delivery.source is not self._messages]
        held = [part for part in others if self._hold_key and must_hold_key(part.headers)]
        free = [part for part in others if part not in held]
        failed = [*told(self._messages.retry, own)]
        for store, parts in ((self._messages.hold, held), (self._messages.keep, free)):
            failed += self._stored(told(store, parts), [part.delivery for part in parts])
        return failed

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Store these as dead letters, then acknowledge the broker's."""
        return self._stored(told(self._messages.dead_letter, dead), [part.delivery for part in dead])

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Return deliveries that were never started."""
        own, others = self._split(deliveries)
        return [*told(self._messages.give_back, own), *told(self._broker.give_back, others)]

    def _stored(
        self, failed: Sequence[SettleFailed], deliveries: Sequence[Delivery]
    ) -> Sequence[SettleFailed]:
        lost = {part.delivery for part in failed}
        _, others = self._split([each for each in deliveries if each not in lost])
        return [*failed, *told(self._broker.acknowledge, others)]

    def _split(self, deliveries: Sequence[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        own = [each for each in deliveries if each.source is self._messages]
        return own, [each for each in deliveries if each.source is not self._messages]


def settling_of(
    plan: ConsumerPlan, broker: Adapter, parked: ParkingPlace | None, observers: Observers
) -> Settling:
    """Return the settler of a consumer's deliveries; `observers` hear of keys that dead letters hold."""
    if isinstance(parked, InstanceMessages):
        removes = plan.effects is not Effects.DATABASE
        return InstanceSettling(broker, parked, hold_key=plan.hold_key, removes=removes)
    if plan.hold_dead is None or parked is None:
        return settling(broker, parked, hold_key=plan.hold_key)

    def unheld(delivery: Delivery, error: Exception) -> None:
        observers.warned(
            f"consumer {plan.name!r}: the dead letter of key {plan.redact(delivery.known_key)!r} cannot be stored in the ledger, "
            f"so the broker has it and its key is not held: {plan.redact(describe(error))}"
        )

    return HoldingRouter(broker, parked, partial(_tell, observers, plan), unheld)


def _tell(observers: Observers, plan: ConsumerPlan, delivery: Delivery, code: str) -> None:
    full = code == FULL
    observers.key_held(plan.name, delivery, most=plan.hold_dead if full else None)


def replay(connection: Connection, scope: str, reader: Reader, letter: DeadLetter) -> None:
    """Have an instance run a dead letter again, with fresh attempts, whenever it runs next.

    Args:
        connection: the transaction that removes the letter.
        scope: of the instance.
        reader: reads the message's key and identity.
        letter: of the ledger.
    """
    message = replace(
        letter.message, headers=names.for_replay(letter.message.headers), attempt=1, first_failed_at=None
    )
    try:
        envelope, *_ = reader.read(message)
        key, identity = envelope.key, envelope.identity
    except MessageRefused:
        # It will be refused again, unless the reason has gone.
        key, identity = "", letter.id
    now = server_time(connection)
    parking.add(connection, scope, [Parked(0, key, identity, None, False, message, REPLAYED, now, now)])
