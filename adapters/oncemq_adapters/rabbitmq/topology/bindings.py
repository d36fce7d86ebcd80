"""Binds a group's queue by the routes of its consumer, and finds bindings that no route needs any more."""

from collections.abc import Iterator
from typing import Final

from oncemq.common.problems import Problem, Severity
from oncemq.errors import BrokerUnavailable
from oncemq_adapters.rabbitmq.connection import management
from oncemq_adapters.rabbitmq.connection.address import Address
from oncemq_adapters.rabbitmq.metadata import ROUTING_KEY_HEADER
from oncemq_adapters.rabbitmq.topology.names import Place
from oncemq_adapters.route_selection import RouteSelection


def _pattern(key: str) -> tuple[str, str] | None:
    if not {"*", "#"} & set(key.split(".")):
        return None
    return (
        "is a pattern, but routes are compared with the routing key of a message as it is",
        "write each routing key",
    )


_BOUND: Final = "the group's queue is bound by the routing keys of the routes, but the topic has"
ROUTES: Final = RouteSelection(
    "RabbitMQ",
    "routing key",
    f"headers.{ROUTING_KEY_HEADER}",
    "routing_keys",
    {name: f"{_BOUND} {name}" for name in ("routing_key", "routing_keys", "queue", "stream", "partitions")},
    _pattern,
)


def examine_bindings(place: Place, address: Address) -> Iterator[Problem]:
    """Warn of each key with which the group's queue is still bound, though the topic has it no more."""
    wanted = place.topic.routing_keys
    if not wanted or not address.management:
        return
    try:
        rows = management.ask(address, "queues", place.queue, "bindings")
        found = {str(row["routing_key"]) for row in rows if row["source"] == place.topic.exchange}
    except (BrokerUnavailable, KeyError, TypeError):
        # The queue is not there yet; that the API does not answer is said with the policies.
        return
    for key in sorted(found - set(wanted)):
        yield Problem(
            f"the queue {place.queue!r} is still bound to exchange {place.topic.exchange!r} by {key!r}, which is none of its "
            "routing keys: messages of that key come, too, and have no route",
            "remove the binding when every member of the group has the new routes",
            "routes",
            Severity.WARNING,
        )
