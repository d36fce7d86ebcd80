"""Sends the answers of deliveries to who requested them, on every broker in the same way."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import structlog

from oncemq.errors import BrokerError
from oncemq.message.envelope import Delivery
from oncemq.message.headers import ANSWER_FAILURES

Copy = TypeVar("Copy")


def send_answers(
    deliveries: Sequence[Delivery],
    make: Callable[[Delivery], Copy | None],
    send: Callable[[Sequence[Copy]], Sequence[BrokerError | None]],
    *,
    failed: bool,
) -> None:
    """Send the answers that are requested; one that cannot be delivered is logged and dropped.

    Who asks again gets the same answer. No error of an answer keeps a message from being acknowledged.

    Args:
        deliveries: those with an answer are looked at.
        make: returns a delivery's answer as the broker has it; None if none is requested, or it was dropped.
        send: publishes them, and returns the error of each.
        failed: the answers say why the requests have failed; only who asks for such answers gets them.
    """
    answers = [
        (delivery, found)
        for delivery in deliveries
        if delivery.answer is not None and (not failed or ANSWER_FAILURES in delivery.message.headers)
        if (found := make(delivery)) is not None
    ]
    if not answers:
        return
    errors = send([answer for _, answer in answers])
    for (delivery, _), error in zip(answers, errors, strict=True):
        delivery.answered = "failure" if failed else "result"
        if error is not None:
            dropped(delivery, str(error))


def dropped(delivery: Delivery, why: str, **more: Any) -> None:
    """Note that a delivery's answer was dropped; `more` is logged with it."""
    delivery.answered = "dropped"
    structlog.get_logger("oncemq").warning(
        "answer dropped", topic=delivery.message.topic, key=delivery.key, reason=why, **more
    )
