"""Tries every right that a consumer uses, on a queue that vanishes with the connection, and prints what would grant them."""

import re
import shlex
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from pika.exceptions import ChannelClosed, UnroutableError

from oncemq.common.problems import Problem
from oncemq_adapters.rabbitmq.connection import errors as faults
from oncemq_adapters.rabbitmq.connection.address import Address
from oncemq_adapters.rabbitmq.topology.names import Place
from oncemq_adapters.rabbitmq.topology.queue_type import insist_on_queue


def missing_rights(connection: Any, place: Place, address: Address) -> Iterator[Problem]:
    """Yield the account's missing rights; nothing is left behind, and no message published.

    Args:
        connection: of the account that consumes.
        place: the consumer's queues.
        address: whose account and virtual host it is.
    """
    queue = f"{place.private}.rights-{uuid.uuid4().hex[:12]}"
    tries: list[tuple[str, Callable[[Any], object]]] = [
        (
            "publish retries and dead letters to the default exchange",
            lambda channel: _publish(channel, queue),
        ),
        ("declare the group's own queues", lambda channel: _declare(channel, queue)),
        ("read the group's own queues", lambda _: insist_on_queue(connection, queue)),
    ]
    exchange = place.topic.exchange
    if exchange and not place.is_existing and place.topic.stream is None:
        tries.append(
            (
                f"bind the group's queue to exchange {exchange!r}",
                lambda channel: channel.queue_bind(queue, exchange, place.topic.bound_keys[0]),
            )
        )
    for what, attempt in tries:
        try:
            attempt(connection.channel())
        except ChannelClosed as error:
            # Missing objects are created at the start; the queue is missing where it could not be declared.
            if error.reply_code == faults.FORBIDDEN:
                yield Problem(
                    f"user {address.username!r} may not {what}: {error.reply_text}",
                    f"run: {grant(place, address)}",
                )


def grant(place: Place, address: Address) -> str:
    """Return the command that gives an account what a consumer needs; several consumers need all of theirs together."""
    own = re.escape(place.private) + r"\..*"
    names = {re.escape(place.queue), own}
    exchange = {re.escape(place.topic.exchange)} - {""}
    stream = {re.escape(place.topic.stream)} if place.topic.stream else set()
    configure = {own} if place.is_existing else names | exchange
    rights = (configure, {own, *names, r"amq\.default"}, names | exchange | stream)
    patterns = [f"^({'|'.join(sorted(some))})$" for some in rights]
    command = ["rabbitmqctl", "set_permissions", "-p", address.virtual_host, address.username, *patterns]
    return shlex.join(command)


def _publish(channel: Any, queue: str) -> None:
    channel.confirm_delivery()
    try:
        channel.basic_publish("", queue, b"", mandatory=True)
    except UnroutableError:
        return


def _declare(channel: Any, queue: str) -> None:
    channel.queue_declare(queue, exclusive=True, auto_delete=True)
