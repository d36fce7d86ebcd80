"""Addresses copies of a message: to a queue that delays it, to the dead letters, to a topic."""

import uuid
from collections.abc import Mapping
from datetime import datetime

from oncemq.contracts.adapter import DeadLetterRequest, ParkedDeadLetter, RetryRequest
from oncemq.message import headers as names
from oncemq.message.envelope import Delivery, OutgoingMessage
from oncemq.message.headers import DEAD_AT, DEAD_ID
from oncemq_adapters.rabbitmq.consuming.channel_deliveries import Token
from oncemq_adapters.rabbitmq.messages.forwarding import NO_PROPERTIES, Copy, burial, next_hop
from oncemq_adapters.rabbitmq.messages.properties import for_publishing
from oncemq_adapters.rabbitmq.metadata import EXCHANGE, ROUTING_KEY, ROUTING_KEY_HEADER, origin_headers
from oncemq_adapters.rabbitmq.publishing.confirms import Publication
from oncemq_adapters.rabbitmq.topology.declare import holding
from oncemq_adapters.rabbitmq.topology.delays import SilentQueues, step_of
from oncemq_adapters.rabbitmq.topology.names import Place, TopicOptions


def delayed_copy(later: RetryRequest, token: Token, username: str, silent: SilentQueues) -> Publication:
    """Return the copy that comes back to the group after the delay, or at once if there is none.

    Args:
        later: the request.
        token: of the delivery.
        username: of the account that publishes.
        silent: queues that do not confirm now.

    Raises:
        BrokerRefused: the delay is too long for RabbitMQ.
    """
    place = token.intake.place
    copy = _next_hop(later.delivery, later.headers, username)
    step = step_of(later.delay)
    if step == 0:
        return Publication("", place.queue, *copy)
    step = silent.step(step, place.retry_queue)
    arguments = holding(place.topic.queue_type, step, "", place.queue)
    return Publication("", place.retry_queue(step), *copy, arguments)


def dead_copy(dead: DeadLetterRequest, token: Token, username: str, now: datetime) -> Publication:
    """Return the copy that lies in the group's dead-letter queue, under an id of its own."""
    place = token.intake.place
    added = {**dead.headers, DEAD_ID: uuid.uuid4().hex, DEAD_AT: now.isoformat()}
    return Publication("", place.dead_queue, *_next_hop(dead.delivery, added, username))


def burial_copy(dead: ParkedDeadLetter, place: Place, now: datetime, app: str, username: str) -> Publication:
    """Return a dead letter made of a message that no queue holds."""
    origin = {}
    if place.topic.routing_keys:
        # The ledger keeps headers, but not what a message came with; a replay must find its route.
        origin = {
            EXCHANGE: place.topic.exchange,
            ROUTING_KEY: dead.message.headers.get(ROUTING_KEY_HEADER, ""),
        }
    added = {**origin, **dead.headers, DEAD_ID: uuid.uuid4().hex, DEAD_AT: now.isoformat()}
    return Publication("", place.dead_queue, *burial(dead.message, added, now, app, username))


def _next_hop(delivery: Delivery, added: Mapping[str, str], username: str) -> Copy:
    message = delivery.message
    # What a stranger wrote of tries before is not among them any more.
    known = {name: text for name, text in message.headers.items() if name in names.HISTORY}
    headers = {**known, **origin_headers(message), **added}
    return next_hop(message.raw or NO_PROPERTIES, message.body, headers, username)


def new_message(
    topic: TopicOptions, message: OutgoingMessage, now: datetime, message_id: str, app: str
) -> Publication:
    """Return a message for a topic; a delayed one waits in a queue that passes it on.

    Raises:
        BrokerRefused: the delay is too long for RabbitMQ.
    """
    properties = for_publishing(message, now, message_id, app)
    step = step_of(message.delay) if message.delay is not None else 0
    routing_key = topic.key_of(message.key or message_id)
    if step == 0:
        return Publication(topic.exchange, routing_key, properties, message.body)
    queue = f"oncemq.delay.{topic.exchange}.{routing_key}.{step}"
    arguments = holding(topic.queue_type, step, topic.exchange, routing_key)
    return Publication("", queue, properties, message.body, arguments)
