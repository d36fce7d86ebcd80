"""Settles deliveries in bulk: plain acknowledgements, and copies that are confirmed before the original goes."""

from collections.abc import Callable, Iterable, Sequence

from oncemq.contracts.adapter import SettleFailed
from oncemq.errors import BrokerError, DeliveryVoid, SettleError
from oncemq.message.envelope import Delivery
from oncemq_adapters.forwarding import claim_each, forward
from oncemq_adapters.rabbitmq.consuming.channel_deliveries import Intake, Token
from oncemq_adapters.rabbitmq.publishing.confirms import Publication

Send = Callable[[Sequence[Publication]], Sequence[BrokerError | None]]
Move = tuple[Delivery, Callable[[Token], Publication]]


def acknowledge(deliveries: Iterable[Delivery]) -> list[SettleFailed]:
    """Have deliveries acknowledged."""
    return _settle(deliveries, Intake.finish)


def give_back(deliveries: Iterable[Delivery]) -> list[SettleFailed]:
    """Have deliveries requeued."""
    return _settle(deliveries, Intake.give_back)


def move(moves: Sequence[Move], send: Send) -> list[SettleFailed]:
    """Publish a copy of each delivery and acknowledge those whose copy is confirmed; the others stay unsettled."""
    return forward(moves, send, _claim, _unclaim, _finish)


def _finish(deliveries: Sequence[Delivery]) -> list[SettleFailed]:
    return _each(deliveries, Intake.finish)


def _settle(
    deliveries: Iterable[Delivery], how: Callable[[Intake, Delivery], SettleError | None]
) -> list[SettleFailed]:
    claimed, failed = claim_each(deliveries, _claim)
    return failed + _each(claimed, how)


def _each(
    claimed: Sequence[Delivery], how: Callable[[Intake, Delivery], SettleError | None]
) -> list[SettleFailed]:
    ended = [(delivery, how(delivery.token.intake, delivery)) for delivery in claimed]
    for intake in {delivery.token.intake for delivery in claimed}:
        intake.drain_soon()
    return [SettleFailed(delivery, error) for delivery, error in ended if error is not None]


def _claim(delivery: Delivery) -> SettleError | None:
    token = delivery.token
    if not isinstance(token, Token):
        return DeliveryVoid(f"a delivery of topic {delivery.message.topic!r} did not come from RabbitMQ")
    return token.intake.claim(delivery)


def _unclaim(delivery: Delivery) -> None:
    delivery.token.intake.unclaim(delivery)
