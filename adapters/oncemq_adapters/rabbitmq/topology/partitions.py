"""Declares a group's partitions, and replaces them when their number has changed and nothing waits in the old ones."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pika.exceptions import ChannelClosed

from oncemq.errors import BrokerRefused
from oncemq_adapters.rabbitmq.connection import errors as faults
from oncemq_adapters.rabbitmq.connection.address import DECLARE, DECLARE_NOTHING
from oncemq_adapters.rabbitmq.topology.declare import (
    Arguments,
    bind,
    declare,
    ensure_dead_queue,
    ensure_exchange,
    ensure_place,
    insist,
    message_count,
    own_arguments,
    queue_exists,
)
from oncemq_adapters.rabbitmq.topology.delays import all_steps
from oncemq_adapters.rabbitmq.topology.names import MARKER_SUFFIX, MOST_PARTITIONS, Place

_LENGTH = "x-max-length"


def marking(count: int) -> Arguments:
    """Return the arguments of the queue that tells how many partitions a group has."""
    return {"x-queue-type": "classic", _LENGTH: count}


def recorded(connection: Any, marker: str) -> int | None:
    """Return how many partitions a group has at the broker; None if it has none."""
    if not queue_exists(connection, marker):
        return None
    try:
        # Never equal, so that the reply tells the number.
        connection.channel().queue_declare(marker, durable=True, arguments=dict(marking(MOST_PARTITIONS + 1)))
    except ChannelClosed as error:
        found = faults.difference(str(error.reply_text))
        number = found[2].strip("'") if found is not None and found[0] == _LENGTH else ""
        if number.isdigit():
            return int(number)
        raise faults.declaring(error, "queue", marker, "delete it when the group has stopped") from error
    return None


def ensure(connection: Any, place: Place) -> None:
    """Declare what a group needs, partitions or one queue, after the queues of another number of them are gone.

    Raises:
        BrokerRefused: messages wait in queues that the group had before; or something is missing or differs.
    """
    if not place.is_partitioned:
        if not place.is_existing and (before := recorded(connection, place.marker)) is not None:
            leave_former(connection, place, before)
        ensure_place(connection, place)
        return
    topic = place.topic
    ensure_dead_queue(connection, place)
    ensure_exchange(connection, topic)
    connection.channel().exchange_declare(place.members, "fanout", durable=True)
    before = recorded(connection, place.marker)
    if before != topic.partitions:
        leave_former(connection, place, before)
        declare(connection, place.marker, marking(topic.partitions or 0))
    for part in place.parts():
        _ensure_part(connection, part)


def _ensure_part(connection: Any, part: Place) -> None:
    topic = part.topic
    if topic.declare == DECLARE_NOTHING:
        insist(connection, topic, "queue", part.queue)
        return
    if topic.declare == DECLARE or not queue_exists(connection, part.queue):
        declare(connection, part.queue, own_arguments(part))
    for key in _bindings(part):
        bind(connection, part.queue, topic.exchange, key)


def leave_former(connection: Any, place: Place, before: int | None) -> None:
    """Unbind and delete the queues that a group had before, when nothing waits in them.

    Args:
        connection: pika's, of the calling thread.
        place: the group as it is now.
        before: how many partitions it had; None for a single queue.

    Raises:
        BrokerRefused: something waits there or is consumed; nothing has changed then.
    """
    former = (
        place.parts(before)
        if before is not None
        else [replace(place, topic=replace(place.topic, partitions=None))]
    )
    there = [part for part in former if queue_exists(connection, part.queue)]
    for part in there:
        for key in _bindings(part):
            connection.channel().queue_unbind(part.queue, part.topic.exchange, key)
    # After the unbinding, so that nothing can come any more.
    if left := list(_left_in(connection, there)):
        for part in there:
            for key in _bindings(part):
                bind(connection, part.queue, part.topic.exchange, key)
        now, then = place.topic.partitions, "one queue" if before is None else f"{before} partitions"
        raise BrokerRefused(
            f"group {place.private!r} had {then} and shall have {now or 'one queue'}, but {', '.join(left[:3])}; "
            "messages of a key would be handled in two places at once – stop its publishers, let the consumers finish "
            f"with {'no partitions:' if before is None else f'partitions: {before}'}, then change it for all of them"
        )
    for part in there:
        _delete(connection, part)
    if before is not None:
        connection.channel().queue_delete(place.marker)


def remove_partitions(connection: Any, marker: str) -> None:
    """Delete all partitions of a group, with their messages, and what belongs to them."""
    private = marker.removesuffix(MARKER_SUFFIX)
    count = recorded(connection, marker)
    for at in range(count or 0):
        queue = f"{private}.{count}-{at}"
        for name in (queue, *(f"{queue}.retry.{step}" for step in all_steps())):
            connection.channel().queue_delete(name)
    connection.channel().exchange_delete(f"{private}.members")


def _bindings(part: Place) -> tuple[str, ...]:
    topic, number = part.topic, part.partition
    return topic.bound_keys if topic.partitions is None or number is None else (topic.partition_key(number),)


def _left_in(connection: Any, parts: list[Place]) -> Iterator[str]:
    for part in parts:
        found = connection.channel().queue_declare(part.queue, passive=True).method
        if found.message_count or found.consumer_count:
            yield f"{found.message_count} messages and {found.consumer_count} consumers are at queue {part.queue!r}"
        for step in all_steps():
            if count := message_count(connection, part.retry_queue(step)):
                yield f"{count} messages wait in queue {part.retry_queue(step)!r}"


def _delete(connection: Any, part: Place) -> None:
    channel = connection.channel()
    for queue in (part.queue, *map(part.retry_queue, all_steps())):
        channel.queue_delete(queue)
