"""Routes settlements: to the broker that delivered, or to the ledger where a message is parked."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from oncemq.contracts.adapter import DeadLetterRequest, RetryRequest, SettleFailed, Settling
from oncemq.engine.base.overtaken import must_hold_key
from oncemq.engine.parking.sharded import ParkingPlace
from oncemq.errors import BrokerError
from oncemq.message.envelope import Delivery

Part = TypeVar("Part", RetryRequest, DeadLetterRequest)


class SettlementRouter:
    """Stands before the broker where messages may be parked.

    Args:
        broker: settles what it delivered.
        parked: settles what comes from the ledger.
        hold_key: what failed is tried again from the ledger, so that later messages of its key wait behind it.
    """

    def __init__(self, broker: Settling, parked: ParkingPlace, *, hold_key: bool) -> None:
        self._broker = broker
        self._parked = parked
        self._hold_key = hold_key

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Have the broker forget what is done; the ledger has done so in the transaction."""
        return _told(self._broker.acknowledge, [one for one in deliveries if one.source is None])

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Have these come again."""
        own, others = _split(later)
        failed = [*_told(self._parked.retry, own)]
        if not self._hold_key:
            return [*failed, *_told(self._broker.retry, others)]
        early = [one for one in others if not must_hold_key(one.headers)]
        tried = [one for one in others if must_hold_key(one.headers)]
        failed += _told(self._broker.retry, early)
        unkept = _told(self._parked.hold, tried)
        lost = {one.delivery for one in unkept}
        kept = [one.delivery for one in tried if one.delivery not in lost]
        return [*failed, *unkept, *_told(self._broker.acknowledge, kept)]

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Put these among the group's dead letters."""
        own, others = _split(dead)
        return [*_told(self._parked.dead_letter, own), *_told(self._broker.dead_letter, others)]

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Return what was never started."""
        own = [one for one in deliveries if one.source is not None]
        others = [one for one in deliveries if one.source is None]
        return [*_told(self._parked.give_back, own), *_told(self._broker.give_back, others)]


def settling(broker: Settling, parked: ParkingPlace | None, *, hold_key: bool) -> Settling:
    """Return who settles a consumer's deliveries."""
    return broker if parked is None else SettlementRouter(broker, parked, hold_key=hold_key)


def dropping(
    broker: Settling, parked: ParkingPlace | None
) -> Callable[[Sequence[DeadLetterRequest]], Sequence[SettleFailed]]:
    """Return what settles deliveries whose message is safe elsewhere."""

    def drop(dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        own, others = _split(dead)
        failed = list(_told(broker.acknowledge, [each.delivery for each in others]))
        return [*failed, *_told(parked.discard, own)] if parked is not None else failed

    return drop


def _split(parts: Sequence[Part]) -> tuple[list[Part], list[Part]]:
    own = [one for one in parts if one.delivery.source is not None]
    return own, [one for one in parts if one.delivery.source is None]


def _told(
    send: Callable[[Sequence[Any]], Sequence[SettleFailed]], parts: Sequence[Any]
) -> Sequence[SettleFailed]:
    """Ask nobody about nothing; what one of the two cannot settle does not undo what the other has settled."""
    if not parts:
        return ()
    try:
        return send(parts)
    except BrokerError as error:
        return [SettleFailed(_delivery_of(part), error) for part in parts]


def _delivery_of(part: Delivery | RetryRequest | DeadLetterRequest) -> Delivery:
    return part if isinstance(part, Delivery) else part.delivery
