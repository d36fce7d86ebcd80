"""Answers of requests, by the properties reply_to and correlation_id.

Strangers write reply_to. So an answer goes to a queue by the default exchange only, and only to names that no queue with other
contents has by choice: those that the broker itself makes, and those reserved for answers.
"""

from typing import Any, Final

from pika import BasicProperties

from oncemq.message.envelope import Delivery
from oncemq.message.headers import FAILED
from oncemq_adapters.answers import dropped
from oncemq_adapters.rabbitmq.messages.raw_properties import RawProperties, fault_of
from oncemq_adapters.rabbitmq.publishing.confirms import Publication

OUR_REPLIES: Final = "oncemq.replies."
"""How names of queues begin that OnceMQ and others make for answers."""

REPLY_QUEUES: Final = ("amq.gen-", "amq.rabbitmq.reply-to.", OUR_REPLIES)
"""How names of queues begin that get answers: exclusive ones named by the broker, RabbitMQ's direct reply-to, ours."""


def answer_of(delivery: Delivery, app: str, *, failed: bool) -> Publication | None:
    """Return the answer of a delivery; None if none is requested, or from where none is sent, which is logged.

    Args:
        delivery: with its answer.
        app: the app's name.
        failed: it says why the request has failed.
    """
    if delivery.answer is None or not delivery.message.raw:
        return None
    asked = RawProperties(delivery.message.raw)
    if fault_of(asked) is not None or not asked.reply_to:
        return None
    queue: Any = asked.reply_to
    if not isinstance(queue, str) or not queue.startswith(REPLY_QUEUES):
        begins = ", ".join(REPLY_QUEUES)
        dropped(
            delivery,
            f"answers go to queues only whose names begin with one of: {begins}",
            reply_to=str(queue),
        )
        return None
    properties = BasicProperties(
        content_type="application/json",
        correlation_id=asked.correlation_id,
        app_id=app,
        headers={FAILED: "1"} if failed else None,
    )
    return Publication("", queue, properties, delivery.answer)
