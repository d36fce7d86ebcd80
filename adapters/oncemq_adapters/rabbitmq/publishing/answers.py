"""Sends handlers' results to those who requested them, by the properties reply_to and correlation_id.

Strangers write reply_to. So an answer goes to a queue by the default exchange only, and only to names that no queue with other
contents has by choice: those that the broker itself makes, and those reserved for answers.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog
from pika import BasicProperties

from oncemq.errors import BrokerError
from oncemq.message.envelope import Delivery
from oncemq.message.headers import ANSWER_FAILURES, FAILED
from oncemq_adapters.rabbitmq.messages.raw_properties import RawProperties, fault_of
from oncemq_adapters.rabbitmq.publishing.confirms import Publication

OUR_REPLIES: Final = "oncemq.replies."
"""How names of queues begin that OnceMQ and others make for answers."""

REPLY_QUEUES: Final = ("amq.gen-", "amq.rabbitmq.reply-to.", OUR_REPLIES)
"""How names of queues begin that get answers: exclusive ones named by the broker, RabbitMQ's direct reply-to, ours."""


def send_answers(
    deliveries: Sequence[Delivery],
    send: Callable[[Sequence[Publication]], Sequence[BrokerError | None]],
    app: str,
    *,
    failed: bool = False,
) -> None:
    """Send the answers that are requested; one that cannot be delivered is logged and dropped.

    Who asks again gets the same answer. No error of an answer keeps a message from being acknowledged.

    Args:
        deliveries: with their answers.
        send: publishes them, and returns the error of each.
        app: the app's name.
        failed: the answers say why the requests have failed; only who asks for such answers gets them.
    """
    if failed:
        deliveries = [each for each in deliveries if ANSWER_FAILURES in each.message.headers]
    headers = {FAILED: "1"} if failed else None
    answers = [(delivery, _answer(delivery, app, headers)) for delivery in deliveries]
    asked = [(delivery, found) for delivery, found in answers if found is not None]
    if not asked:
        return
    errors = send([publication for _, publication in asked])
    for (delivery, publication), error in zip(asked, errors, strict=True):
        delivery.answered = "failure" if failed else "result"
        if error is not None:
            _dropped(delivery, publication.routing_key, str(error))


def _answer(delivery: Delivery, app: str, headers: Mapping[str, str] | None) -> Publication | None:
    """Return the answer of a delivery; None if none is requested, or from where none is sent."""
    if delivery.answer is None or not delivery.message.raw:
        return None
    asked = RawProperties(delivery.message.raw)
    if fault_of(asked) is not None or not asked.reply_to:
        return None
    queue: Any = asked.reply_to
    if not isinstance(queue, str) or not queue.startswith(REPLY_QUEUES):
        begins = ", ".join(REPLY_QUEUES)
        _dropped(delivery, str(queue), f"answers go to queues only whose names begin with one of: {begins}")
        return None
    properties = BasicProperties(
        content_type="application/json", correlation_id=asked.correlation_id, app_id=app, headers=headers
    )
    return Publication("", queue, properties, delivery.answer)


def _dropped(delivery: Delivery, queue: str, why: str) -> None:
    delivery.answered = "dropped"
    structlog.get_logger("oncemq").warning(
        "answer dropped", topic=delivery.message.topic, key=delivery.key, reply_to=queue, reason=why
    )
