"""Quorum queues of a broker that is going to be killed."""

import re
from datetime import timedelta
from itertools import takewhile
from typing import Any

from oncemq_adapters.rabbitmq.topology.declare import holding
from oncemq_adapters.rabbitmq.topology.delays import all_steps
from services.container import Container
from support.apps.program import eventually
from support.brokers.rabbitmq import connect


def wait_until_named(server: Any, queue: str) -> None:
    """Wait until the broker has written down which log belongs to a new quorum queue.

    RabbitMQ 3.10 keeps that in memory for up to three seconds after it has declared the queue and confirmed
    messages; killed before, it comes back with an empty queue that never has a leader.
    """
    if isinstance(server, Container):
        return  # of a later RabbitMQ, and its files are out of reach
    # A delay queue's name begins with that of the group's own queue.
    name = re.compile(re.escape(f"_{queue}".encode()) + rb"(?!\.)")
    eventually(
        lambda: any(name.search(path.read_bytes()) for path in _names(server)), f"the name of {queue!r}"
    )


def declare_delays(server: Any, queue: str, longest: timedelta) -> None:
    """Declare a group's delay queues beforehand, and wait until they are named.

    The first retry of each length declares one, at any moment of a storm; what was confirmed to such a queue is lost
    where the broker is killed in the next three seconds, by the same defect of RabbitMQ 3.10.

    Args:
        server: the broker.
        queue: the group's own.
        longest: the longest delay that retries may have.
    """
    connection = connect(server.url)
    steps = list(takewhile(lambda step: step <= 2 * longest / timedelta(milliseconds=1), all_steps()))
    for step in steps:
        arguments = dict(holding("quorum", step, "", queue))
        connection.channel().queue_declare(f"{queue}.retry.{step}", durable=True, arguments=arguments)
    connection.close()
    for step in steps:
        wait_until_named(server, f"{queue}.retry.{step}")


def _names(server: Any) -> list[Any]:
    return list(server.data.glob("mnesia/*/quorum/*/names.dets"))
