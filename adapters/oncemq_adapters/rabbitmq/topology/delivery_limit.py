"""Keeps our own give-backs from spending a quorum queue's delivery limit, and says what else spends it."""

from typing import Any

from pika import BasicProperties

from oncemq.common.problems import Problem, Severity
from oncemq.message.envelope import Message

WORN = 5
"""Deliveries that ended unsettled; from then on a message is copied to the queue's end, where it begins at none."""

_COUNT = "x-delivery-count"


def is_worn(message: Message) -> bool:
    """Return whether a message came back so often that one more time may be the one that its queue drops it for."""
    if not message.redelivered or not message.raw:
        return False
    properties: Any = BasicProperties()
    try:
        properties.decode(message.raw)
    except Exception:  # it is a dead letter soon
        return False
    count = (properties.headers or {}).get(_COUNT)
    return isinstance(count, int) and count >= WORN


def limited(queue: str) -> Problem:
    """Return the problem of a quorum queue that OnceMQ has not declared."""
    return Problem(
        f"queue {queue!r} is a quorum queue: RabbitMQ drops what was delivered more often than its delivery limit allows "
        "(20 by default from RabbitMQ 4 on, none before). Each kill, drain and lost connection costs everything fetched "
        "one delivery, and whether the queue passes on what it drops cannot be seen from here",
        "give it a dead-letter exchange by a policy, or a higher delivery-limit",
        "topic.queue",
        Severity.WARNING,
    )
