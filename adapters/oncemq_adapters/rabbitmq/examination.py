"""Whether a RabbitMQ has what a consumer needs, seen without declaring anything new."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from oncemq.errors import BrokerRefused
from oncemq.facts import Problem
from oncemq_adapters.rabbitmq import topology
from oncemq_adapters.rabbitmq.delivery_limit import limited
from oncemq_adapters.rabbitmq.names import Place
from oncemq_adapters.rabbitmq.topology import Arguments


def examine_place(connection: Any, place: Place) -> Iterator[Problem]:
    """Yield what is missing and is not made at the start, and what is there but declared differently."""
    yield from _refusals("group", partial(_same, connection, place.dead_queue, topology.DEAD_ARGUMENTS))
    if place.is_existing:
        try:
            if "quorum" in topology.look_at_queue(connection, place):
                yield limited(place.queue)
        except BrokerRefused as error:
            yield Problem(str(error), where="topic.queue")
        return
    yield from _refusals("topic.exchange", partial(_same_exchange, connection, place))
    yield from _refusals(
        "topic.queue_type", partial(_same, connection, place.queue, topology.own_arguments(place))
    )


def _same(connection: Any, queue: str, arguments: Arguments) -> None:
    # To declare what exists changes nothing, and is the only way to hear how it was declared.
    if topology.queue_exists(connection, queue):
        topology.declare(connection, queue, arguments)


def _same_exchange(connection: Any, place: Place) -> None:
    topic = place.topic
    if topic.exchange and topology.exchange_exists(connection, topic.exchange):
        topology.ensure_exchange(connection, topic)


def _refusals(where: str, look: Callable[[], None]) -> Iterator[Problem]:
    try:
        look()
    except BrokerRefused as error:
        yield Problem(str(error), where=where)
