"""Routes settlements: to the broker that delivered, or to the ledger for parked messages."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from oncemq.contracts.adapter import DeadLetterRequest, RetryRequest, SettleFailed, Settling
from oncemq.engine.base.overtaken import must_hold_key
from oncemq.engine.parking.sharded import ParkingPlace
from oncemq.errors import BrokerError, SettleError
from oncemq.message import headers as names
from oncemq.message.envelope import Delivery

Part = TypeVar("Part", RetryRequest, DeadLetterRequest)
FULL: Final = "held-key-full"
"""The reason of dead letters that came when as many of their key were waiting as may."""
Held = Callable[[Delivery, str], None]
Unheld = Callable[[Delivery, Exception], None]


class SettlementRouter:
    """Precedes the broker where messages may be parked.

    Args:
        broker: settles its own deliveries.
        parked: settles parked deliveries.
        hold_key: failed messages are retried from the ledger, so that later messages of their keys wait behind them.
    """

    def __init__(self, broker: Settling, parked: ParkingPlace, *, hold_key: bool) -> None:
        self._broker = broker
        self._parked = parked
        self._hold_key = hold_key

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Acknowledge to the broker; the ledger has removed its rows in the transaction."""
        return told(
            self._broker.acknowledge, [delivery for delivery in deliveries if delivery.source is None]
        )

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Have these redelivered."""
        own, others = _split(later)
        failed = [*told(self._parked.retry, own)]
        if not self._hold_key:
            return [*failed, *told(self._broker.retry, others)]
        early = [part for part in others if not must_hold_key(part.headers)]
        tried = [part for part in others if must_hold_key(part.headers)]
        failed += told(self._broker.retry, early)
        unkept = told(self._parked.hold, tried)
        lost = {part.delivery for part in unkept}
        kept = [part.delivery for part in tried if part.delivery not in lost]
        return [*failed, *unkept, *told(self._broker.acknowledge, kept)]

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Put these into the group's dead letters."""
        own, others = _split(dead)
        return [*told(self._parked.dead_letter, own), *told(self._broker.dead_letter, others)]

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Return deliveries that were never started."""
        own = [delivery for delivery in deliveries if delivery.source is not None]
        others = [delivery for delivery in deliveries if delivery.source is None]
        return [*told(self._parked.give_back, own), *told(self._broker.give_back, others)]


class HoldingRouter(SettlementRouter):
    """As the other, and dead letters with a key hold it: they lie in the ledger.

    Args:
        broker: settles its own deliveries, and takes dead letters without a key.
        parked: settles parked deliveries, and keeps dead letters.
        held: called with a dead letter's delivery and its reason, once its key is held.
        unheld: called with a delivery and the error, if the ledger can never store it: then the broker takes it.
    """

    def __init__(self, broker: Settling, parked: ParkingPlace, held: Held, unheld: Unheld) -> None:
        super().__init__(broker, parked, hold_key=True)
        self._held = held
        self._unheld = unheld

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Keep these at their places in the ledger, where they have a key, then tell the broker that they are done."""
        mine = [part for part in dead if part.delivery.known_key]
        failed, others = list[SettleFailed](), [part for part in dead if not part.delivery.known_key]
        wrong = {each.delivery: each for each in told(self._parked.hold_dead, mine)}
        for failure in wrong.values():
            if isinstance(failure.error, BrokerError | SettleError):
                failed.append(failure)
            else:
                self._unheld(failure.delivery, failure.error)
        lost = {failure.delivery for failure in failed}
        others += [part for part in mine if part.delivery in wrong and part.delivery not in lost]
        done = [part for part in mine if part.delivery not in wrong]
        failed += told(self.acknowledge, [part.delivery for part in done])
        lost = {failure.delivery for failure in failed}
        for part in done:
            if part.delivery not in lost:
                self._held(part.delivery, part.headers[names.REASON])
        return [*failed, *told(super().dead_letter, others)]


def settling(broker: Settling, parked: ParkingPlace | None, *, hold_key: bool) -> Settling:
    """Return the settler of a consumer's deliveries."""
    return broker if parked is None else SettlementRouter(broker, parked, hold_key=hold_key)


def dropping(
    broker: Settling, parked: ParkingPlace | None
) -> Callable[[Sequence[DeadLetterRequest]], Sequence[SettleFailed]]:
    """Return a function that settles deliveries whose message is stored elsewhere."""

    def drop(dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        own, others = _split(dead)
        failed = list(told(broker.acknowledge, [each.delivery for each in others]))
        return [*failed, *told(parked.discard, own)] if parked is not None else failed

    return drop


def _split(parts: Sequence[Part]) -> tuple[list[Part], list[Part]]:
    own = [part for part in parts if part.delivery.source is not None]
    return own, [part for part in parts if part.delivery.source is None]


def told(
    send: Callable[[Sequence[Any]], Sequence[SettleFailed]], parts: Sequence[Any]
) -> Sequence[SettleFailed]:
    """Skip empty calls; a failure of one of the two does not undo the other's settlements."""
    if not parts:
        return ()
    try:
        return send(parts)
    except BrokerError as error:
        return [SettleFailed(_delivery_of(part), error) for part in parts]


def _delivery_of(part: Delivery | RetryRequest | DeadLetterRequest) -> Delivery:
    return part if isinstance(part, Delivery) else part.delivery
