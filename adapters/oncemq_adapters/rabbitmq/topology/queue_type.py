"""Asks whether a queue is a stream, which a plain account may do, and without taking a message."""

from collections.abc import Mapping
from typing import Any

from pika.exceptions import ChannelClosed

from oncemq.errors import BrokerRefused
from oncemq_adapters.rabbitmq.connection import errors as faults

Arguments = Mapping[str, Any]

NO_STREAM: Arguments = {"x-priority": 0}
"""Of every subscription: the default of classic and quorum queues, and refused for a stream by RabbitMQ from 3.10 on."""

_NEVER_TAKEN: Arguments = {**NO_STREAM, "x-stream-offset": "next"}
"""Every type of queue refuses one of these, so nothing is subscribed and nothing delivered."""


def insist_on_queue(connection: Any, queue: str) -> str:
    """Refuse a stream: messages published while no consumer is there would be skipped.

    Returns:
        What the broker says of the queue's type; empty where it says nothing.

    Raises:
        BrokerRefused: it is a stream.
        ChannelClosed: the broker refuses to say, because the queue is missing or may not be read.
    """
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1)
    try:
        channel.basic_consume(queue, lambda *_: None, arguments=dict(_NEVER_TAKEN))
    except ChannelClosed as error:
        if is_stream(error):
            raise stream(queue) from error
        if error.reply_code != faults.DIFFERENT:
            raise
        return str(error.reply_text).rpartition("of queue type")[2].strip()
    # Neither is known to a broker this old, and it has no streams.
    channel.close()
    return ""


def is_stream(error: BaseException) -> bool:
    """Return whether a subscription was refused because the queue is a stream."""
    refused = getattr(error, "reply_code", 0) == faults.DIFFERENT
    return refused and "'x-priority'" in str(getattr(error, "reply_text", ""))


def stream(queue: str) -> BrokerRefused:
    """Return the error for a stream."""
    return BrokerRefused(
        f"queue {queue!r} is a stream, where acknowledging does not move a consumer on, so messages would be skipped or come again "
        f"– write stream: {queue} instead of queue:, or replace queue: by exchange: and routing_key: to have a queue of the "
        "group's own declared and bound"
    )
