"""Compares the subscriptions of a group's members: RocketMQ divides queues among all, also those that a member never reads."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from oncemq.contracts.adapter import Subscription
from oncemq_adapters.rocketmq.errors import FAILURES
from oncemq_adapters.rocketmq.names import group_of, parse_topic
from oncemq_adapters.rocketmq.remoting.operations import Operations
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.codes import Place
from oncemq_adapters.rocketmq_client.connections import Routes, allocate
from oncemq_adapters.rocketmq_client.errors import Denied, RocketMQUnavailable
from oncemq_adapters.rocketmq_client.names import (
    ALLOCATIONS,
    RETRY_PREFIX,
    in_namespace,
)
from oncemq_adapters.rocketmq_client.protocol import BROADCASTING, SHARING, Connection, loose_json

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
        queues: those that it says it consumes, by topic.
        model: whether members share the messages or each gets all, in Java's words; empty if it does not say.
    """

    client: str
    address: str
    topics: Wanted
    queues: Mapping[str, Sequence[Place]]
    model: str = ""


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as its brokers list it.

    Args:
        clients: the ids of all members, sorted.
        members: those that answered.
    """

    clients: Sequence[str]
    members: Sequence[GroupMember]


def complaints(
    desk: Operations, subscriptions: Sequence[Subscription], namespace: str, broadcasts: Iterable[str] = ()
) -> list[str]:
    """Return a sentence for each member of the groups that keeps messages from being consumed.

    Args:
        desk: asks the brokers.
        subscriptions: ours.
        namespace: of topics and groups.
        broadcasts: groups in which each of our instances gets all messages, besides those of `subscriptions`.

    Raises:
        ConfigError: a subscription's options cannot work.
        BrokerError: no name server answers.
    """
    wanted, rules = wanted_by(subscriptions, namespace), allocations_by(subscriptions, namespace)
    names = {*broadcasts, *(each.group for each in subscriptions if each.broadcast is not None)}
    ours = {in_namespace(namespace, name) for name in names}
    found: list[str] = []
    for group, topics in wanted.items():
        view = look_at(desk, group)
        found += differing(view, group, topics)
        found += of_other_model(view, group, broadcast=group in ours)
        if group not in ours:
            found += divided_otherwise(desk.routes, view, group, topics, rules[group])
    return found


def wanted_by(subscriptions: Sequence[Subscription], namespace: str) -> dict[str, dict[str, frozenset[str]]]:
    """Return the subscriptions of each group's members, by the group's real name.

    Raises:
        ConfigError: a subscription's options cannot work.
    """
    found: dict[str, dict[str, frozenset[str]]] = {}
    for subscription in subscriptions:
        topic = parse_topic(subscription.topic, subscription.options, namespace)
        found.setdefault(group_of(subscription, namespace), {})[topic.name] = (
            frozenset([_sql(topic.filter)]) if topic.filter else topic.tags
        )
    return found


def allocations_by(subscriptions: Sequence[Subscription], namespace: str) -> dict[str, str]:
    """Return the rule by which each group divides queues, by the group's real name.

    Raises:
        ConfigError: a subscription's options cannot work.
    """
    return {
        group_of(subscription, namespace): parse_topic(
            subscription.topic, subscription.options, namespace
        ).allocation
        for subscription in subscriptions
    }


def divided_otherwise(
    routes: Routes, view: GroupView, group: str, topics: Iterable[str], ours: str
) -> Iterator[str]:
    """Yield a sentence for each member whose queues follow from another rule of Java's client than ours.

    Raises:
        BrokerError: no name server answers.
    """
    for member in view.members:
        for topic in sorted(set(topics) & set(member.queues)):
            queues, held = routes.find(topic).readable, set(member.queues[topic])
            fitting = [
                rule
                for rule in ALLOCATIONS
                if set(allocate(rule, topic, member.client, queues, view.clients)) == held
            ]
            if fitting and ours not in fitting:
                yield (
                    f"group {group!r} has a member that divides queues by another rule: {member.client} at "
                    f"{member.address} by {fitting[0]}, this app by {ours}; some queues are consumed twice and some never – "
                    f"write allocation: {fitting[0]} at topic {topic!r}, or give that member ours"
                )


def of_other_model(view: GroupView, group: str, *, broadcast: bool) -> Iterator[str]:
    """Yield a sentence for each member that shares the group's messages where we get all, or the other way round."""
    ours = BROADCASTING if broadcast else SHARING
    words = {SHARING: "shares its messages with others", BROADCASTING: "broadcasts"}
    for member in view.members:
        if member.model in words and member.model != ours:
            yield (
                f"group {group!r} has a member that {words[member.model]}: {member.client} at {member.address}, while this app "
                f"{words[ours]}; the broker takes the whole group for what the last one said – give one of both another group:"
            )


def differing(view: GroupView, group: str, wanted: Wanted) -> Iterator[str]:
    """Yield a sentence for each member that subscribes to something else."""
    for member in view.members:
        if dict(member.topics) != dict(wanted):
            yield (
                f"group {group!r} has a member that subscribes otherwise: {member.client} at {member.address} to "
                f"{_listed(member.topics)}, this app to {_listed(wanted)}; queues are divided among both, and messages in "
                "those that a member does not read are not consumed"
            )


def look_at(desk: Operations, group: str) -> GroupView:
    """Return the members of a group, each once.

    Raises:
        BrokerError: no name server answers.
    """
    clients: set[str] = set()
    found = tuple(_members(desk, group, clients))
    return GroupView(sorted(clients), found)


def _members(desk: Operations, group: str, clients: set[str]) -> Iterator[GroupMember]:
    """Yield the members that answer, and add the ids of all."""
    asked: set[str] = set()
    deadline = monotonic() + _LOOK_WITHIN
    for broker in sorted(desk.routes.brokers()):
        try:
            connection = desk.brokers.get(broker)
            _, body = connection.call(codes.GROUP_MEMBERS, {"consumerGroup": group})
        except (
            Denied,
            RocketMQUnavailable,
        ):  # no member is connected, the account may not ask, or the broker is away
            continue
        listed = loose_json(body)
        for client in _mappings(listed.get("connectionSet") if isinstance(listed, Mapping) else None):
            name, address = str(client.get("clientId")), str(client.get("clientAddr"))
            clients.add(name)
            if name in asked or len(asked) >= _MOST_ASKED or client.get("language") in _NOT_ASKED:
                continue
            asked.add(name)
            left = deadline - monotonic()
            info = _running_info(connection, group, name, min(_ANSWER_WITHIN, left)) if left > 0 else None
            if info is not None and isinstance(info.get("subscriptionSet"), list):
                yield GroupMember(
                    name, address, _subscribed(info["subscriptionSet"]), _queues(info), _model(info)
                )


def _running_info(connection: Connection, group: str, client: str, within: float) -> Mapping[str, Any] | None:
    """Return what a member answers through its broker in so many seconds; None if it does not, such as behind a proxy."""
    fields = {"consumerGroup": group, "clientId": client, "jstackEnable": "false"}
    try:
        _, body = connection.call(codes.RUNNING_INFO, fields, timeout=within)
        told = loose_json(body)
    except FAILURES:
        return None
    return told if isinstance(told, Mapping) else None


def _model(info: Mapping[str, Any]) -> str:
    properties = info.get("properties")
    return str(properties.get("messageModel", "")) if isinstance(properties, Mapping) else ""


def _queues(info: Mapping[str, Any]) -> Mapping[str, Sequence[Place]]:
    """Return the queues that a member consumes; its table has them as keys, texts of JSON here."""
    found: dict[str, list[Place]] = {}
    table = info.get("mqTable")
    for text in table if isinstance(table, Mapping) else ():
        with suppress(ValueError, KeyError, TypeError):
            named = json.loads(text)
            place = str(named["brokerName"]), int(named["queueId"])
            found.setdefault(str(named["topic"]), []).append(place)
    return found


def _subscribed(rows: Sequence[Any]) -> Wanted:
    return {
        str(row.get("topic")): _tags(row)
        for row in _mappings(rows)
        if not str(row.get("topic")).startswith(RETRY_PREFIX)
    }


def _tags(row: Mapping[str, Any]) -> frozenset[str]:
    expression = str(row.get("subString") or "*")
    if row.get("expressionType") not in (None, "TAG"):
        return frozenset([_sql(expression)])
    return frozenset(tag for part in expression.split("||") if (tag := part.strip()) and tag != "*")


def _sql(expression: str) -> str:
    return f"SQL92: {expression}"


def _mappings(rows: Any) -> Iterator[Mapping[str, Any]]:
    yield from (row for row in rows or () if isinstance(row, Mapping))


def _listed(topics: Wanted) -> str:
    texts = [f"{topic} ({' || '.join(sorted(tags)) or 'all tags'})" for topic, tags in sorted(topics.items())]
    return " and ".join(texts) or "nothing"
