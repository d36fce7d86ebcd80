"""Makes sure that a group's objects exist: declares our own, only checks foreign ones."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import structlog
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import AMQPError, ChannelClosed, ConnectionClosed

from oncemq.errors import BrokerError, BrokerRefused, BrokerUnavailable
from oncemq_adapters.near_names import nearest
from oncemq_adapters.rabbitmq.connection import errors as faults
from oncemq_adapters.rabbitmq.connection.address import (
    DECLARE,
    DECLARE_MISSING,
    DECLARE_NOTHING,
    Address,
)
from oncemq_adapters.rabbitmq.connection.pika_connection import blocking_connection
from oncemq_adapters.rabbitmq.topology.names import (
    DEFAULT_EXCHANGE,
    DEFAULT_KIND,
    Place,
    TopicOptions,
)
from oncemq_adapters.rabbitmq.topology.queue_type import insist_on_queue
from oncemq_adapters.rabbitmq.topology.streams import insist_on_stream

_ADVICE = "set queue_type to what it is, delete the queue when it is empty, or consume it as it is with queue: {queue}"

Arguments = Mapping[str, Any]

# Quorum queues count every read as a delivery, change the order, and drop messages read too often.
# A full queue refuses, since by default it would drop its oldest letter for each new one that it confirms.
DEAD_ARGUMENTS: Arguments = {"x-queue-type": "classic", "x-overflow": "reject-publish"}
"""Of every queue of dead letters; an operator's policy on the length cannot change the second."""


@contextmanager
def connected(address: Address, name: str) -> Iterator[Any]:
    """Lend a short-lived connection of the calling thread's own; tries all hosts.

    Raises:
        BrokerError: no host could be used; says why the last one could not, or what went wrong inside.
    """
    connection = _connect(address, name)
    try:
        yield connection
    except AMQPError as error:
        raise faults.lost(error) from error
    finally:
        with suppress(AMQPError):
            connection.close()


def _connect(address: Address, name: str) -> Any:
    failure: BrokerError = BrokerUnavailable("no RabbitMQ host is configured")
    for host, patience in address.order.tries():
        try:
            connection = blocking_connection(address.parameters(host, name, patience))
        except (AMQPError, AMQPConnectorException, OSError) as error:
            failure = faults.connecting(error, address, host)
            address.order.failed(host)
        else:
            address.order.succeeded(host)
            return connection
    raise failure


def ensure_place(connection: Any, place: Place) -> None:
    """Declare a group's queue, its binding and its dead-letter queue; look at an existing queue.

    Raises:
        BrokerRefused: something does not exist, or exists and is declared differently.
    """
    topic = place.topic
    ensure_dead_queue(connection, place)
    if place.is_existing:
        look_at_queue(connection, place)
        return
    ensure_exchange(connection, topic)
    if topic.declare == DECLARE_NOTHING:
        insist(connection, topic, "queue", place.queue)
        return
    if topic.declare == DECLARE or not queue_exists(connection, place.queue):
        declare(connection, place.queue, own_arguments(place))
    if topic.stream is not None:
        # Only retries come to the group's own queue.
        insist_on_stream(connection, topic.stream, topic.topic)
        return
    for key in topic.bound_keys:
        bind(connection, place.queue, topic.exchange, key)


def ensure_dead_queue(connection: Any, place: Place) -> None:
    """Declare a group's queue of dead letters; one whose node is away is there again with the node, and not waited for.

    Raises:
        BrokerRefused: as `declare_dead_queue`.
    """
    try:
        declare_dead_queue(connection, place.dead_queue)
    except faults.NodeAway as error:
        structlog.get_logger("oncemq").warning(
            "queue of dead letters is away", queue=place.dead_queue, error=str(error)
        )


def bind(connection: Any, queue: str, exchange: str, routing_key: str) -> None:
    """Bind a queue to an exchange.

    Raises:
        BrokerRefused: one of them is missing, or we may not.
    """
    with _explained("queue", queue, f"it cannot be bound to {exchange!r}"):
        connection.channel().queue_bind(queue, exchange, routing_key)


def ensure_exchange(connection: Any, topic: TopicOptions) -> None:
    """Make the topic's exchange unless it exists, and say so; a declared type that differs is refused.

    Raises:
        BrokerRefused: it has another type, or does not exist and is not to be made.
    """
    if not topic.exchange:
        return
    if topic.declare == DECLARE_NOTHING:
        insist(connection, topic, "exchange", topic.exchange)
        return
    there = exchange_exists(connection, topic.exchange)
    if there and (topic.exchange_type is None or topic.declare == DECLARE_MISSING):
        return
    if not there and topic.exchange != DEFAULT_EXCHANGE:
        structlog.get_logger("oncemq").warning(
            "exchange did not exist and is created", **about_missing(connection, topic)
        )
    kind = topic.exchange_type or DEFAULT_KIND
    advice = f"write the exchange_type it has at topic {topic.topic!r}, or leave it out to take the exchange as it is"
    with _explained("exchange", topic.exchange, advice):
        try:
            connection.channel().exchange_declare(topic.exchange, kind, durable=True)
        except ChannelClosed as error:
            if not _differs_elsewhere(error, "type"):
                raise


def about_missing(connection: Any, topic: TopicOptions) -> dict[str, str]:
    """Return what a person should know about an exchange that does not exist: its topic, and what was perhaps meant."""
    meant = nearest(topic.exchange, partial(exchange_exists, connection))
    found = {"topic": topic.topic, "exchange": topic.exchange}
    return found if meant is None else found | {"did_you_mean": meant}


def insist(connection: Any, topic: TopicOptions, what: str, name: str) -> None:
    """Make sure that an exchange or a queue exists that is not made here.

    Raises:
        BrokerRefused: it does not; names the nearest that does.
    """
    exists = partial(exchange_exists if what == "exchange" else queue_exists, connection)
    if exists(name):
        return
    meant = nearest(name, exists)
    raise BrokerRefused(
        f"the {what} {name!r} of topic {topic.topic!r} does not exist{f'; did you mean {meant!r}?' if meant else ''}, and "
        "declare: false leaves it to others to make it – make it, or write declare: missing"
    )


def declare(connection: Any, queue: str, arguments: Arguments) -> None:
    """Declare a durable queue of ours."""
    with _explained("queue", queue, _ADVICE.format(queue=queue)):
        connection.channel().queue_declare(queue, durable=True, arguments=arguments)


def declare_dead_queue(connection: Any, queue: str) -> bool:
    """Declare a queue of dead letters; return whether it refuses letters when it is full.

    Raises:
        BrokerRefused: it exists and is not one of ours.
    """
    try:
        connection.channel().queue_declare(queue, durable=True, arguments=DEAD_ARGUMENTS)
    except ChannelClosed as error:
        found = faults.difference(str(error.reply_text))
        if error.reply_code != faults.DIFFERENT or found is None or found[0] != "x-overflow":
            raise faults.declaring(error, "queue", queue, _ADVICE.format(queue=queue)) from error
        # An existing queue cannot be changed; those that older versions declared have no such argument.
        current = found[2].strip("'")
        kept = {} if current == "none" else {"x-overflow": current}
        declare(connection, queue, {"x-queue-type": DEAD_ARGUMENTS["x-queue-type"], **kept})
        return False
    except ConnectionClosed as error:
        raise faults.declaring(error, "queue", queue, _ADVICE.format(queue=queue)) from error
    return True


def own_arguments(place: Place) -> Arguments:
    """Return the arguments of a group's own queue."""
    # From RabbitMQ 4 a quorum queue drops messages delivered 20 times, unless it dead-letters them.
    arguments: dict[str, Any] = {
        "x-queue-type": place.topic.queue_type,
        **dead_lettering("", place.dead_queue),
    }
    if place.topic.max_priority is not None:
        arguments["x-max-priority"] = place.topic.max_priority
    if place.partition is not None:
        arguments["x-single-active-consumer"] = True
    return arguments


def dead_lettering(exchange: str, routing_key: str) -> Arguments:
    """Return the arguments that make a queue dead-letter dropped and expired messages."""
    return {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": routing_key}


def holding(queue_type: str, milliseconds: int, exchange: str, routing_key: str) -> Arguments:
    """Return the arguments of a queue that holds each message back for a fixed time, then passes it on."""
    arguments = {
        "x-queue-type": queue_type,
        "x-message-ttl": milliseconds,
        **dead_lettering(exchange, routing_key),
    }
    if queue_type == "quorum":
        # Passing on is confirmed inside the broker; by default a crash in between loses the message.
        arguments |= {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    return arguments


def depth_of(connection: Any, queue: str) -> int:
    """Return how many messages wait in a queue."""
    with _explained("queue", queue, "start a consumer of the group once, it is made then"):
        return int(connection.channel().queue_declare(queue, passive=True).method.message_count)


def message_count(connection: Any, queue: str) -> int:
    """Return how many messages are ready in a queue; 0 if it does not exist."""
    try:
        return int(connection.channel().queue_declare(queue, passive=True).method.message_count)
    except ChannelClosed as error:
        if not faults.is_missing(error):
            raise faults.declaring(error, "queue", queue, "") from error
        return 0


def remove_queue(connection: Any, queue: str) -> None:
    """Delete a queue with everything in it; one that is not there is no error.

    Raises:
        BrokerRefused: we may not.
    """
    with _explained("queue", queue, "delete it with an account that may"):
        connection.channel().queue_delete(queue)


def exchange_exists(connection: Any, exchange: str) -> bool:
    """Return whether there is such an exchange.

    Raises:
        BrokerRefused: there is not, and the name cannot be declared; or the check is not permitted.
    """
    try:
        connection.channel().exchange_declare(exchange, passive=True)
    except ChannelClosed as error:
        if error.reply_code == faults.MISSING and (not exchange.startswith("amq.")):
            return False
        raise faults.declaring(
            error, "exchange", exchange, "names that start with amq. cannot be declared"
        ) from error
    return True


def queue_exists(connection: Any, queue: str) -> bool:
    """Return whether there is such a queue.

    Raises:
        BrokerRefused: we may not look.
    """
    try:
        connection.channel().queue_declare(queue, passive=True)
    except ChannelClosed as error:
        if faults.is_missing(error):
            return False
        raise faults.declaring(error, "queue", queue, "") from error
    return True


def look_at_queue(connection: Any, place: Place) -> str:
    """Insist that a foreign queue exists, and can be consumed; return the statement on its type.

    Raises:
        BrokerRefused: it does not, is a stream, or we may not use it.
    """
    advice = (
        f"topic {place.topic.topic!r} says queue: {place.queue}, which is never declared here – declare it, or "
        "replace queue: by exchange: and routing_key: to have a queue of the group's own declared and bound"
    )
    with _explained("queue", place.queue, advice):
        connection.channel().queue_declare(place.queue, passive=True)
        return insist_on_queue(connection, place.queue)


def _differs_elsewhere(error: ChannelClosed, argument: str) -> bool:
    found = faults.difference(str(error.reply_text))
    return error.reply_code == faults.DIFFERENT and found is not None and found[0] != argument


@contextmanager
def _explained(what: str, name: str, advice: str) -> Iterator[None]:
    try:
        yield
    except (ChannelClosed, ConnectionClosed) as error:
        raise faults.declaring(error, what, name, advice) from error
