"""Binds a group's queue by the routes of its consumer, and finds bindings that no route needs any more."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from oncemq.common.problems import Problem, Severity
from oncemq.errors import BrokerUnavailable, ConfigError
from oncemq_adapters.rabbitmq.connection import management
from oncemq_adapters.rabbitmq.connection.address import Address
from oncemq_adapters.rabbitmq.metadata import ROUTING_KEY_HEADER
from oncemq_adapters.rabbitmq.topology.names import Place


def route_options(by: str, values: Sequence[str], options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a topic's options with the routing keys of routes.

    Raises:
        ConfigError: the routes are not by routing key, one is a pattern, or the topic says its routing keys already.
    """
    problems = []
    if by.strip() != f"headers.{ROUTING_KEY_HEADER}":
        problems.append(
            Problem(
                f"RabbitMQ selects messages by their routing key, not by {by}: a consumer cannot subscribe to such routes alone",
                f"write by: headers.{ROUTING_KEY_HEADER}, or otherwise: ignore",
                "routes.by",
            )
        )
    problems += (
        Problem(
            f"with otherwise: unsubscribed the group's queue is bound by the routing keys of the routes, but the topic has "
            f"{name}, too",
            f"leave {name} out, and publish to a topic of its own",
            f"topic.{name}",
        )
        for name in ("routing_key", "routing_keys")
        if name in options
    )
    problems += (
        Problem(
            f"the route {value!r} is a pattern, but routes are compared with the routing key of a message as it is",
            "write each routing key",
            "routes",
        )
        for value in values
        if {"*", "#"} & set(value.split("."))
    )
    problems += (
        Problem(
            f"with otherwise: unsubscribed the group's queue is bound by the routes, but the topic has {name}",
            f"leave {name} out, or write otherwise: reject",
            f"topic.{name}",
        )
        for name in ("queue", "stream", "partitions")
        if name in options
    )
    if problems:
        raise ConfigError(problems)
    return {**options, "routing_keys": list(values)}


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
