"""Requirements of a proxy for groups: orderly for fifo topics only, without members on the remoting protocol."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from oncemq.errors import BrokerRefused
from oncemq_adapters.rocketmq.errors import FAILURES
from oncemq_adapters.rocketmq.grpc.topics import ProxiedTopic
from oncemq_adapters.rocketmq.remoting.admin.broker_settings import group_settings
from oncemq_adapters.rocketmq.remoting.operations import Operations
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.admin import begin_group
from oncemq_adapters.rocketmq_client.codes import Place
from oncemq_adapters.rocketmq_client.errors import Denied
from oncemq_adapters.rocketmq_client.protocol import loose_json

LOOK_EVERY = 5.0
"""Seconds between looks at the topics' queues."""

_PUSHED = "CONSUME_PASSIVELY"


def ensure_group(desk: Operations, group: str, *, fifo: bool) -> None:
    """Make a group on every broker that does not have it.

    Raises:
        BrokerRefused: it is there and of the other kind.
    """
    for broker in desk.routes.brokers():
        connection = desk.brokers.get(broker)
        known = group_settings(connection, group)
        if known is None:
            wanted = {"groupName": group, "consumeEnable": True, "consumeMessageOrderly": fifo}
            connection.call(codes.UPDATE_GROUP, {}, json.dumps(wanted).encode())
        elif is_other_kind(known, fifo=fifo):
            raise other_kind(group, fifo=fifo)


def is_other_kind(known: Mapping[str, Any], *, fifo: bool) -> bool:
    """Return whether a group is orderly and its topic is not, or the other way round."""
    return bool(known.get("consumeMessageOrderly")) != fifo


def other_kind(group: str, *, fifo: bool) -> BrokerRefused:
    """Return the error for such a group."""
    return BrokerRefused(
        f"group {group!r} of RocketMQ is {'not ' if fifo else ''}orderly, but its topic is "
        f"{'' if fifo else 'not '}fifo – take another group, or run `mqadmin updateSubGroup -c <cluster> "
        f"-g '{group}' -o {str(fifo).lower()}`"
    )


def refuse_others(desk: Operations, group: str) -> None:
    """Refuse a group with members on the remoting protocol: they take whole queues and see no leases.

    Raises:
        BrokerRefused: it has some now.
    """
    for broker in desk.routes.brokers():
        try:
            _, body = desk.brokers.get(broker).call(codes.GROUP_MEMBERS, {"consumerGroup": group})
        except Denied:  # no member is connected
            continue
        found = loose_json(body)
        if found.get("connectionSet") and found.get("consumeType") == _PUSHED:
            raise BrokerRefused(
                f"group {group!r} has members on the remoting protocol, which take whole queues, while a proxy leases "
                "single messages – give this consumer another group, or use rocketmq:// for all of them"
            )


def begin(desk: Operations, topic: ProxiedTopic, group: str) -> None:
    """Note where a new group begins; a proxy would let it begin anywhere."""
    places = desk.routes.ask(topic.name).readable
    begin_group(desk.brokers, places, topic.name, group, topic.options.start)


class AddedQueues:
    """Watches for queues that are added while a group runs: a proxy may begin in them at their end.

    Args:
        desk: connections over the remoting protocol.
        groups: each topic with the group that consumes it.
    """

    def __init__(self, desk: Operations, groups: Sequence[tuple[ProxiedTopic, str]]) -> None:
        self._desk = desk
        self._groups = groups
        self._known: dict[str, tuple[Place, ...]] = {}

    def look(self) -> None:
        """Commit where the groups begin in queues that are new."""
        for topic, group in self._groups:
            with suppress(*FAILURES):
                places = self._desk.routes.ask(topic.name).readable
                if places != self._known.get(group + topic.name):
                    begin(self._desk, topic, group)
                    self._known[group + topic.name] = places
