"""Compares the subscriptions of a group's members: RocketMQ divides queues among all, also those that a member never reads."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from oncemq.contracts.adapter import Subscription
from oncemq.errors import BrokerError
from oncemq_adapters.rocketmq.names import RETRY_PREFIX, group_of, parse_topic
from oncemq_adapters.rocketmq.remoting.operations import Operations
from oncemq_adapters.rocketmq.remoting.protocol import codes
from oncemq_adapters.rocketmq.remoting.protocol.connection import Connection
from oncemq_adapters.rocketmq.remoting.protocol.errors import Denied
from oncemq_adapters.rocketmq.remoting.protocol.frames import loose_json

_ANSWER_WITHIN = 3.0
_LOOK_WITHIN = 5.0
"""Seconds for all members of a group together: silent ones must not delay a start by minutes."""
_MOST_ASKED = 50
"""Members of a group that are asked for their subscriptions; each asks a process."""
_NOT_ASKED = frozenset({"CPP"})
"""Languages of members that are not asked: a member on librocketmq may stop consuming after such a request."""

Wanted = Mapping[str, frozenset[str]]
"""Tags by topic; no tags = all messages."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A client that a broker lists as a member.

    Args:
        client: its id.
        address: where it is connected from.
        topics: what it says that it subscribes to, the group's retries left out.
    """

    client: str
    address: str
    topics: Wanted


def wanted_by(subscriptions: Sequence[Subscription], namespace: str) -> dict[str, dict[str, frozenset[str]]]:
    """Return the subscriptions of each group's members, by the group's real name.

    Raises:
        ConfigError: a subscription's options cannot work.
    """
    found: dict[str, dict[str, frozenset[str]]] = {}
    for subscription in subscriptions:
        topic = parse_topic(subscription.topic, subscription.options, namespace)
        found.setdefault(group_of(subscription, namespace), {})[topic.name] = topic.tags
    return found


def differing(desk: Operations, group: str, wanted: Wanted) -> Iterator[str]:
    """Yield a sentence for each member that subscribes to something else.

    Raises:
        BrokerError: a broker cannot be reached.
    """
    for member in members(desk, group):
        if dict(member.topics) != dict(wanted):
            yield (
                f"group {group!r} has a member that subscribes otherwise: {member.client} at {member.address} to "
                f"{_listed(member.topics)}, this app to {_listed(wanted)}; queues are divided among both, and messages in "
                "those that a member does not read are not consumed"
            )


def members(desk: Operations, group: str) -> Iterator[GroupMember]:
    """Yield the members that answer, each once.

    Raises:
        BrokerError: a broker cannot be reached.
    """
    asked: set[str] = set()
    deadline = monotonic() + _LOOK_WITHIN
    for broker in sorted(desk.routes.brokers()):
        connection = desk.brokers.get(broker)
        try:
            _, body = connection.call(codes.GROUP_MEMBERS, {"consumerGroup": group})
        except Denied:  # no member is connected, or the account may not ask
            continue
        listed = loose_json(body)
        for client in _mappings(listed.get("connectionSet") if isinstance(listed, Mapping) else None):
            name, address = str(client.get("clientId")), str(client.get("clientAddr"))
            if name in asked or len(asked) >= _MOST_ASKED or client.get("language") in _NOT_ASKED:
                continue
            asked.add(name)
            left = deadline - monotonic()
            topics = _subscribed(connection, group, name, min(_ANSWER_WITHIN, left)) if left > 0 else None
            if topics is not None:
                yield GroupMember(name, address, topics)


def _subscribed(connection: Connection, group: str, client: str, within: float) -> Wanted | None:
    """Return what a member answers through its broker in so many seconds; None if it does not, such as behind a proxy."""
    fields = {"consumerGroup": group, "clientId": client, "jstackEnable": "false"}
    try:
        _, body = connection.call(codes.RUNNING_INFO, fields, timeout=within)
        told = loose_json(body)
    except BrokerError:
        return None
    rows = told.get("subscriptionSet") if isinstance(told, Mapping) else None
    if not isinstance(rows, list):
        return None
    return {
        str(row.get("topic")): _tags(row)
        for row in _mappings(rows)
        if not str(row.get("topic")).startswith(RETRY_PREFIX)
    }


def _tags(row: Mapping[str, Any]) -> frozenset[str]:
    expression = str(row.get("subString") or "*")
    if row.get("expressionType") not in (None, "TAG"):
        return frozenset([f"{row.get('expressionType')}: {expression}"])
    return frozenset(tag for part in expression.split("||") if (tag := part.strip()) and tag != "*")


def _mappings(rows: Any) -> Iterator[Mapping[str, Any]]:
    yield from (row for row in rows or () if isinstance(row, Mapping))


def _listed(topics: Wanted) -> str:
    texts = [f"{topic} ({' || '.join(sorted(tags)) or 'all tags'})" for topic, tags in sorted(topics.items())]
    return " and ".join(texts) or "nothing"
