"""Makes sure that topics exist, registers where new groups begin, and counts waiting messages."""

from collections.abc import Iterator

from oncemq.contracts.broker_queries import Backlog
from oncemq.errors import BrokerRefused, Unroutable
from oncemq_adapters.rocketmq.errors import REFUSALS
from oncemq_adapters.rocketmq.names import TopicOptions
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.admin import (
    begin_group,
    committed_offset,
    create_group,
    create_topic,
    first_offset,
    last_offset,
    makes_on_demand,
    unsettled,
)
from oncemq_adapters.rocketmq_client.codes import Place
from oncemq_adapters.rocketmq_client.connections import Brokers, GroupMembership, Route, Routes
from oncemq_adapters.rocketmq_client.errors import Denied
from oncemq_adapters.rocketmq_client.names import FIRST, retry_topic
from oncemq_adapters.rocketmq_client.protocol import Connection, client_check_body


def ensure_topic(routes: Routes, brokers: Brokers, topic: TopicOptions) -> None:
    """Look at a topic, and make it where that is wanted, or where brokers make topics on demand themselves.

    Raises:
        BrokerRefused: it does not exist and is not made here.
    """
    try:
        routes.ask(topic.name)
    except Denied as denied:
        if denied.code != codes.NO_TOPIC:
            raise
        if not _is_made(routes, topic):
            raise missing(topic) from denied
        create_topic(routes, brokers, topic.name, topic.queues, fifo=topic.fifo)


def route_of(routes: Routes, topic: TopicOptions) -> Route | None:
    """Return where a topic is, or will be created if missing; None if it is missing and never created.

    Raises:
        BrokerError: the name server does not say.
    """
    try:
        return routes.ask(topic.name)
    except Denied as denied:
        if denied.code != codes.NO_TOPIC:
            raise
        if not _is_made(routes, topic):
            return None
        places = tuple((name, number) for name in sorted(routes.brokers()) for number in range(topic.queues))
        return Route(places, places)


def missing(topic: TopicOptions) -> Unroutable:
    """Return the error for a topic that does not exist."""
    return Unroutable(
        f"topic {topic.name!r} does not exist on RocketMQ – make it with "
        f"`mqadmin updateTopic -c <cluster> -t {topic.name}`, or write create: true at topic {topic.topic!r}"
    )


def register(routes: Routes, brokers: Brokers, topic: TopicOptions, group: str) -> None:
    """Make sure that the group exists, and note where a new one begins, unless that is the beginning.

    Raises:
        BrokerRefused: it does not exist and is not made here.
    """
    places = routes.find(topic.name).readable
    for connection in brokers.reached(name for name, _ in places).values():
        _ensure_group(connection, group, topic)
        if topic.filter:
            insist_on_filter(connection, group, topic)
    if topic.start == FIRST:
        return
    begin_group(brokers, places, topic.name, group, topic.start)


def insist_on_filter(connection: Connection, group: str, topic: TopicOptions) -> None:
    """Ask a broker whether it can filter a topic as declared; Java's clients ask the same at their start.

    Raises:
        BrokerRefused: it cannot: the expression is wrong, or the broker filters by tags alone.
    """
    body = client_check_body("oncemq-check", group, topic.name, topic.selection, 0)
    try:
        connection.call(codes.CHECK_CLIENT, {}, body)
    except Denied as denied:
        raise BrokerRefused(
            f"broker {connection.peer} of RocketMQ cannot filter topic {topic.topic!r} by {topic.filter!r}: {denied.remark} – "
            "correct filter:, or set enablePropertyFilter=true in its broker.conf"
        ) from denied


def missing_group(topic: TopicOptions, group: str, where: str) -> BrokerRefused:
    """Return the error for a group that does not exist and is not made on demand."""
    return BrokerRefused(
        f"group {group!r} does not exist on {where} of RocketMQ, which makes none on demand – make it with "
        f"`mqadmin updateSubGroup -c <cluster> -g {group}`, or write create: true at topic {topic.topic!r}"
    )


def depth(routes: Routes, brokers: Brokers, topic: TopicOptions, group: str) -> int:
    """Return how many messages wait for a group, retries that are due included."""
    total = 0
    for name, place in _places(routes, topic.name, retry_topic(group)):
        broker, number = place
        connection = brokers.get(broker)
        done = committed_offset(connection, group, name, number)
        if done is None:
            done = first_offset(connection, name, number, topic.start if name == topic.name else FIRST, group)
        total += max(0, last_offset(connection, name, number, group) - done)
    return total


def backlog(routes: Routes, brokers: Brokers, topic: TopicOptions, group: str) -> Backlog:
    """Return which waiting messages have been delivered to a member already."""
    waiting = depth(routes, brokers, topic, group)
    found: list[int | None] = []
    for name in (topic.name, retry_topic(group)):
        for broker in sorted({place[0] for _, place in _places(routes, name)}):
            try:
                found.append(unsettled(brokers.get(broker), group, name))
            except REFUSALS:
                found.append(None)
    if None in found:
        return Backlog(
            waiting,
            unknown="waiting includes unacknowledged messages: the broker tells them apart from RocketMQ 5 on, "
            "to users that may read the group's statistics",
        )
    unacknowledged = min(waiting, sum(filter(None, found)))
    return Backlog(waiting - unacknowledged, unacknowledged)


def _ensure_group(connection: Connection, group: str, topic: TopicOptions) -> None:
    try:
        # Brokers that make groups on demand do so when they are asked for one.
        connection.call(codes.GROUP_CONFIG, {"group": group})
    except Denied as denied:
        if denied.code != codes.NO_GROUP:
            # A broker before 5.x, or one that does not say: it is enough to be a member for a moment.
            _introduce(connection, group, topic)
        elif topic.create:
            create_group(connection, group)
        else:
            raise missing_group(topic, group, f"broker {connection.peer}") from denied


def _introduce(connection: Connection, group: str, topic: TopicOptions) -> None:
    presence = GroupMembership("registration", group, [topic.name], lambda _: topic.selection, 0)
    presence.hello(connection)
    presence.farewell([connection])


def _places(routes: Routes, *topics: str) -> Iterator[tuple[str, Place]]:
    for topic in topics:
        try:
            readable = routes.ask(topic).readable
        except Denied:
            if topic == topics[0]:
                raise
            continue
        for place in readable:
            yield topic, place


def _is_made(routes: Routes, topic: TopicOptions) -> bool:
    return bool(topic.create or (topic.create is None and makes_on_demand(routes)))
