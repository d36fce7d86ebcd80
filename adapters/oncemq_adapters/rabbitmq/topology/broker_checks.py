"""Checks that a RabbitMQ has what a consumer needs, without declaring anything new."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from oncemq.common.problems import Problem, Severity
from oncemq.errors import BrokerRefused
from oncemq_adapters.rabbitmq.connection.address import DECLARE_MISSING, DECLARE_NOTHING
from oncemq_adapters.rabbitmq.topology import declare as topology
from oncemq_adapters.rabbitmq.topology.declare import Arguments
from oncemq_adapters.rabbitmq.topology.delivery_limit import limited
from oncemq_adapters.rabbitmq.topology.names import DEFAULT_EXCHANGE, Place
from oncemq_adapters.rabbitmq.topology.streams import insist_on_stream


def examine_place(connection: Any, place: Place) -> Iterator[Problem]:
    """Yield objects that are missing and not created at the start, and those declared differently."""
    yield from _dead_queue(connection, place.dead_queue)
    if place.is_existing:
        try:
            if "quorum" in topology.look_at_queue(connection, place):
                yield limited(place.queue)
        except BrokerRefused as error:
            yield Problem(str(error), where="topic.queue")
        return
    if place.topic.stream is not None:
        yield from _refusals(
            "topic.stream", partial(insist_on_stream, connection, place.topic.stream, place.topic.topic)
        )
    yield from _refusals("topic.exchange", partial(_same_exchange, connection, place))
    yield from _missing_exchange(connection, place)
    if place.topic.declare == DECLARE_NOTHING:
        for queue in place.queues():
            yield from _refusals(
                "topic.declare", partial(topology.insist, connection, place.topic, "queue", queue)
            )
        return
    if place.topic.declare == DECLARE_MISSING:
        return
    for part in place.parts():
        yield from _refusals(
            "topic.queue_type", partial(_same, connection, part.queue, topology.own_arguments(part))
        )


def _dead_queue(connection: Any, queue: str) -> Iterator[Problem]:
    """Yield what is wrong with an existing queue of dead letters."""
    try:
        keeps = not topology.queue_exists(connection, queue) or topology.declare_dead_queue(connection, queue)
    except BrokerRefused as error:
        yield Problem(str(error), where="group")
        return
    if not keeps:
        yield Problem(
            f"the dead-letter queue {queue!r} was made without overflow: reject-publish, so a policy that limits its length "
            "would drop the oldest dead letter for each new one",
            "delete the queue when it is empty; the next start makes it again",
            "group",
            Severity.WARNING,
        )


def _same(connection: Any, queue: str, arguments: Arguments) -> None:
    # To declare what exists changes nothing, and is the only way to hear how it was declared.
    if topology.queue_exists(connection, queue):
        topology.declare(connection, queue, arguments)


def _same_exchange(connection: Any, place: Place) -> None:
    topic = place.topic
    made_here = topic.declare != DECLARE_NOTHING
    if topic.exchange and not (made_here and not topology.exchange_exists(connection, topic.exchange)):
        topology.ensure_exchange(connection, topic)


def _missing_exchange(connection: Any, place: Place) -> Iterator[Problem]:
    """Yield a warning about an exchange that a start would make, unless its name is our own."""
    topic = place.topic
    if topic.declare == DECLARE_NOTHING or topic.exchange in {"", DEFAULT_EXCHANGE}:
        return
    if not topology.exchange_exists(connection, topic.exchange):
        meant = topology.about_missing(connection, topic).get("did_you_mean")
        hint = f"; did you mean {meant!r}?" if meant else ""
        yield Problem(
            f"the exchange {topic.exchange!r} does not exist, and the start will make it{hint}",
            "nothing, if publishers use this name; declare: false refuses what is not there",
            "topic.exchange",
            Severity.WARNING,
        )


def _refusals(where: str, look: Callable[[], None]) -> Iterator[Problem]:
    try:
        look()
    except BrokerRefused as error:
        yield Problem(str(error), where=where)
