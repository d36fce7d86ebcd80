"""Settles deliveries in bulk: plain acknowledgements, and copies that are confirmed before the original goes."""

from collections.abc import Callable, Iterable, Sequence

from oncemq.contracts.adapter import SettleFailed
from oncemq.errors import BrokerError, DeliveryVoid, SettleError
from oncemq.message.envelope import Delivery
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
    failed: list[SettleFailed] = []
    claimed: list[Delivery] = []
    publications: list[Publication] = []
    for delivery, copy in moves:
        if (error := _claim(delivery)) is not None:
            failed.append(SettleFailed(delivery, error))
            continue
        try:
            publications.append(copy(delivery.token))
        except BrokerError as refusal:
            delivery.token.intake.unclaim(delivery)
            failed.append(SettleFailed(delivery, refusal))
        else:
            claimed.append(delivery)
    return failed + _finish_moved(claimed, send(publications))


def _finish_moved(claimed: Sequence[Delivery], errors: Sequence[BrokerError | None]) -> list[SettleFailed]:
    failed: list[SettleFailed] = []
    intakes: set[Intake] = set()
    for delivery, error in zip(claimed, errors, strict=True):
        intake: Intake = delivery.token.intake
        outcome: Exception | None = error
        if error is None:
            outcome = intake.finish(delivery)
            intakes.add(intake)
        else:
            intake.unclaim(delivery)
        if outcome is not None:
            failed.append(SettleFailed(delivery, outcome))
    _drain(intakes)
    return failed


def _settle(
    deliveries: Iterable[Delivery], how: Callable[[Intake, Delivery], SettleError | None]
) -> list[SettleFailed]:
    failed: list[SettleFailed] = []
    intakes: set[Intake] = set()
    for delivery in deliveries:
        error = _claim(delivery)
        if error is None:
            intake = delivery.token.intake
            error = how(intake, delivery)
            intakes.add(intake)
        if error is not None:
            failed.append(SettleFailed(delivery, error))
    _drain(intakes)
    return failed


def _claim(delivery: Delivery) -> SettleError | None:
    token = delivery.token
    if not isinstance(token, Token):
        return DeliveryVoid(f"a delivery of topic {delivery.message.topic!r} did not come from RabbitMQ")
    return token.intake.claim(delivery)


def _drain(intakes: Iterable[Intake]) -> None:
    for intake in intakes:
        intake.drain_soon()
