"""Quorum queues of a broker that is going to be killed."""

from typing import Any

from services.container import Container
from support.program import eventually


def wait_until_named(server: Any, queue: str) -> None:
    """Wait until the broker has written down which log belongs to a new quorum queue.

    RabbitMQ 3.10 keeps that in memory for up to three seconds after it has declared the queue and confirmed
    messages; killed before, it comes back with an empty queue that never has a leader.
    """
    if isinstance(server, Container):
        return  # of a later RabbitMQ, and its files are out of reach
    name = f"_{queue}".encode()
    eventually(lambda: any(name in path.read_bytes() for path in _names(server)), f"the name of {queue!r}")


def _names(server: Any) -> list[Any]:
    return list(server.data.glob("mnesia/*/quorum/*/names.dets"))
