"""Forwards deliveries: the copy of each is confirmed before the original is finished, on every broker in the same order."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from oncemq.contracts.adapter import SettleFailed
from oncemq.errors import BrokerError, SettleError
from oncemq.message.envelope import Delivery

Copy = TypeVar("Copy")
Claim = Callable[[Delivery], SettleError | None]


def forward(
    moves: Sequence[tuple[Delivery, Callable[[Any], Copy | None]]],
    send: Callable[[Sequence[Copy]], Sequence[BrokerError | None]],
    claim: Claim,
    unclaim: Callable[[Delivery], None],
    finish: Callable[[Sequence[Delivery]], list[SettleFailed]],
) -> list[SettleFailed]:
    """Publish a copy of each delivery and finish those whose copy is confirmed; the others stay unsettled.

    Args:
        moves: deliveries, each with what makes the copy from its token; None = an earlier call has had it confirmed.
        send: publishes, and returns an error or None for each copy.
        claim: reserves a delivery for this settlement, or returns why that is not possible.
        unclaim: makes it unsettled again.
        finish: lets claimed deliveries go for good; returns those for which that came too late.
    """
    failed: list[SettleFailed] = []
    copied: list[Delivery] = []
    copies: list[tuple[Delivery, Copy]] = []
    for delivery, make in moves:
        error: Exception | None = claim(delivery)
        if error is None:
            try:
                copy = make(delivery.token)
            except BrokerError as refusal:
                unclaim(delivery)
                error = refusal
            else:
                if copy is None:
                    copied.append(delivery)
                else:
                    copies.append((delivery, copy))
        if error is not None:
            failed.append(SettleFailed(delivery, error))
    answers = send([copy for _, copy in copies]) if copies else ()
    for (delivery, _), refused in zip(copies, answers, strict=True):
        if refused is None:
            copied.append(delivery)
        else:
            unclaim(delivery)
            failed.append(SettleFailed(delivery, refused))
    return failed + finish(copied)


def claim_each(deliveries: Iterable[Delivery], claim: Claim) -> tuple[list[Delivery], list[SettleFailed]]:
    """Return the deliveries that could be reserved for a settlement, and why the others could not."""
    claimed: list[Delivery] = []
    failed: list[SettleFailed] = []
    for delivery in deliveries:
        error = claim(delivery)
        if error is None:
            claimed.append(delivery)
        else:
            failed.append(SettleFailed(delivery, error))
    return claimed, failed
