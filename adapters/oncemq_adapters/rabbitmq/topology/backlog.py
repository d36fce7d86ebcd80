"""Counts a group's messages: ready, unacknowledged, and waiting in its retry queues."""

from datetime import datetime, timedelta
from typing import Any

from oncemq.contracts.broker_queries import Backlog
from oncemq.errors import BrokerUnavailable
from oncemq_adapters.rabbitmq.connection import management
from oncemq_adapters.rabbitmq.connection.address import Address
from oncemq_adapters.rabbitmq.topology.declare import depth_of, message_count
from oncemq_adapters.rabbitmq.topology.delays import all_steps
from oncemq_adapters.rabbitmq.topology.names import Place

_UNKNOWN = "unacknowledged messages are unknown"
_HOW = f"{_UNKNOWN}: RabbitMQ tells them through its management API, so {management.HOW}"


def backlog_of(connection: Any, place: Place, address: Address, now: datetime, unread: int = 0) -> Backlog:
    """Return the figures of a group; unacknowledged ones from the management API, if it is configured.

    Args:
        connection: pika's.
        place: the group's.
        address: of the broker and its management API.
        now: the present moment.
        unread: messages of its stream that the group has not read.
    """
    ready = unread + sum(depth_of(connection, queue) for queue in place.queues())
    retries, first = 0, None
    for step in all_steps():
        count = sum(message_count(connection, part.retry_queue(step)) for part in place.parts())
        if count and first is None:
            first = now + timedelta(milliseconds=step)
        retries += count
    unacknowledged, unknown = None, _HOW
    if address.management:
        answers = [_unacknowledged(address, queue) for queue in place.queues()]
        known = [count for count, _ in answers if count is not None]
        unacknowledged = sum(known) if len(known) == len(answers) else None
        unknown = next((why for _, why in answers if why), "")
    return Backlog(ready, unacknowledged, retries, first, unknown)


def _unacknowledged(address: Address, queue: str) -> tuple[int | None, str]:
    try:
        return int(management.ask(address, "queues", queue)["messages_unacknowledged"]), ""
    except KeyError:
        why = "it has no statistics of the queue yet"
    except (BrokerUnavailable, ValueError, TypeError) as error:
        why = str(error)
    return None, f"{_UNKNOWN}: the management API at {address.management} does not tell them ({why})"
