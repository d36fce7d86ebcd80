"""Reads how brokers give a topic to a group: its members pull from queues, or are handed out messages one by one (POP)."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.connections import Brokers, Routes
from oncemq_adapters.rocketmq_client.errors import Denied
from oncemq_adapters.rocketmq_client.protocol import BROADCASTING, Connection, loose_json

_POP: Final = "POP"


def pops(connection: Connection, topic: str, group: str) -> bool:
    """Return whether a broker is set to hand out a topic to a group by POP; False where it does not say.

    Raises:
        RocketMQError: the broker cannot be reached, or its answer makes no sense.
    """
    # A broadcasting client need not be a member to be answered; the mode is the same for all.
    question = {
        "topic": topic,
        "consumerGroup": group,
        "clientId": "oncemq-check",
        "strategyName": "AVG",
        "messageModel": BROADCASTING,
    }
    try:
        _, body = connection.call(codes.QUERY_ASSIGNMENT, {}, json.dumps(question).encode())
    except Denied:
        # Before 5.x brokers can only be pulled from.
        return False
    return any(row.get("mode") == _POP for row in _assignments(loose_json(body)))


def popping(routes: Routes, brokers: Brokers, topic: str, group: str) -> str:
    """Return what is wrong where brokers hand out a topic to a group by POP; empty if none of those within reach does.

    Raises:
        RocketMQError: no broker can be reached.
    """
    names = (name for name, _ in routes.find(topic).readable)
    connections = brokers.reached(names)
    return said_of([name for name, each in connections.items() if pops(each, topic, group)], topic, group)


def said_of(brokers: Iterable[str], topic: str, group: str) -> str:
    """Return what is wrong on these brokers; empty without any."""
    where = ", ".join(brokers)
    return where and (
        f"group {group!r} is set to POP for topic {topic!r} on {where}, but this app pulls: each message would be "
        "consumed by a member that follows that setting, and by this app"
    )


def to_pull(topic: str, group: str) -> str:
    """Return what to do where a group is set to POP."""
    return f"run `mqadmin setConsumeMode -c <cluster> -t {topic} -g {group} -m PULL`, or write another group:"


def _assignments(answer: Any) -> Iterable[Mapping[str, Any]]:
    rows = answer.get("messageQueueAssignments") if isinstance(answer, Mapping) else None
    return [row for row in rows or () if isinstance(row, Mapping)]
