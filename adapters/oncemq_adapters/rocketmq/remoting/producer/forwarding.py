"""Copies of deliveries that go elsewhere: confirmed, before anybody lets the originals go."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from oncemq.contracts.adapter import SettleFailed
from oncemq.errors import BrokerError, SettleError
from oncemq.message.envelope import Delivery
from oncemq_adapters.rocketmq.remoting.protocol.message_codec import StoredMessage
from oncemq_adapters.rocketmq.remoting.protocol.send_request import Outgoing

Send = Callable[[Sequence[Outgoing]], Sequence[BrokerError | None]]


def send_copies(
    moves: Sequence[tuple[Delivery, Callable[[Any], Outgoing]]],
    send: Send,
    claim: Callable[[Delivery], SettleError | None],
    unclaim: Callable[[Delivery], None],
) -> tuple[list[Delivery], list[SettleFailed]]:
    """Publish a copy of each delivery; returns those whose copy is confirmed, still claimed, and what failed.

    Args:
        moves: deliveries, each with what makes the copy from its token.
        send: publishes, and returns what is wrong with each.
        claim: reserves a delivery, or says why that is not possible.
        unclaim: makes it unsettled again.
    """
    failed: list[SettleFailed] = []
    claimed: list[Delivery] = []
    copies: list[Outgoing] = []
    for delivery, copy in moves:
        error: Exception | None = claim(delivery)
        if error is None:
            try:
                copies.append(copy(delivery.token))
                claimed.append(delivery)
            except BrokerError as refusal:
                unclaim(delivery)
                error = refusal
        if error is not None:
            failed.append(SettleFailed(delivery, error))
    confirmed: list[Delivery] = []
    for delivery, answer in zip(claimed, send(copies) if copies else (), strict=True):
        if answer is None:
            confirmed.append(delivery)
        else:
            unclaim(delivery)
            failed.append(SettleFailed(delivery, answer))
    return confirmed, failed


def resend(
    messages: Sequence[StoredMessage], copy: Callable[[StoredMessage], Outgoing], send: Send
) -> list[StoredMessage]:
    """Publish a copy of each message; returns those whose copy is confirmed. A message that cannot be copied stays where it is."""
    copied, copies = list[StoredMessage](), list[Outgoing]()
    for message in messages:
        with suppress(BrokerError):
            copies.append(copy(message))
            copied.append(message)
    answers = send(copies) if copies else ()
    return [message for message, error in zip(copied, answers, strict=True) if error is None]
