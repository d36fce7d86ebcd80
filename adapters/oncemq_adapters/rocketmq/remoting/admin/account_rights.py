"""Tries what an account may do on a broker that authorizes requests, by requests that change nothing."""

import json
from collections.abc import Iterator, Mapping, Sequence

from oncemq.common.problems import Problem
from oncemq_adapters.rocketmq.names import TopicOptions
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.admin import browsing_fields
from oncemq_adapters.rocketmq_client.errors import Denied, is_forbidden
from oncemq_adapters.rocketmq_client.names import retry_topic
from oncemq_adapters.rocketmq_client.protocol import Connection, Fields, Outgoing, send_fields

_PROBE = "oncemq-check"
_NO_QUEUE = 1_000_000
"""The number of a queue that no topic has: the broker looks at the account first, and then refuses the message."""


def consuming_problems(
    connections: Mapping[str, Connection], account: str, topic: TopicOptions, group: str
) -> Iterator[Problem]:
    """Yield what the account may not do, with the command that permits it.

    Args:
        connections: to the brokers that have the topic, by name.
        account: its name.
        topic: what is declared about the topic.
        group: by its real name.
    """
    found: dict[str, list[str]] = {}
    for name, connection in connections.items():
        lacking = []
        if not _may_consume(connection, group):
            lacking.append(f"Group:{group}")
        if not _may_read(connection, topic.name, group):
            lacking.append(f"Topic:{topic.name}")
        for resource in lacking:
            found.setdefault(resource, []).append(name)
    if found:
        where = ", ".join(dict.fromkeys(name for names in found.values() for name in names))
        yield Problem(
            f"account {account!r} may not consume {' and '.join(found)} on {where}",
            _permit(connections, account, list(found), "Sub"),
            "group",
        )


def publishing_problems(
    connections: Mapping[str, Connection], account: str, topic: TopicOptions
) -> Iterator[Problem]:
    """Yield where the account may not publish to a topic that exists, with the command that permits it."""
    denied = [name for name, connection in connections.items() if not _may_publish(connection, topic.name)]
    if denied:
        yield Problem(
            f"account {account!r} may not publish to topic {topic.name!r} on {', '.join(denied)}",
            _permit(connections, account, [f"Topic:{topic.name}"], "Pub"),
        )


def _permit(
    connections: Mapping[str, Connection], account: str, resources: Sequence[str], action: str
) -> str:
    if any(connection.version < codes.TIMER_SINCE for connection in connections.values()):
        named = [(*resource.partition(":"), action.upper()) for resource in resources]
        lines = [f"{kind.lower()}Perms: [{name}={right}]" for kind, _, name, right in named]
        return f"give the account {' and '.join(lines)} in plain_acl.yml"
    return f"run `mqadmin createAcl -c <cluster> -s User:{account} -r {','.join(resources)} -a {action} -d Allow`"


def _may_consume(connection: Connection, group: str) -> bool:
    """Return whether the account may consume in a group's name: unlocking nothing needs that right, and so do its members."""
    nothing = {"consumerGroup": retry_topic(group), "clientId": _PROBE, "mqSet": []}
    return _permitted(connection, codes.UNLOCK_QUEUES, {}, json.dumps(nothing).encode()) and _permitted(
        connection, codes.CONSUMERS, {"consumerGroup": group}
    )


def _may_read(connection: Connection, topic: str, group: str) -> bool:
    """Return whether the account may consume a topic.

    A pull asks for the topic first and then for the group; without the right to the group it cannot create that either.
    """
    unlocked = {
        "consumerGroup": retry_topic(group),
        "clientId": _PROBE,
        "mqSet": [{"topic": topic, "brokerName": _PROBE, "queueId": 0}],
    }
    try:
        connection.call(codes.UNLOCK_QUEUES, {}, json.dumps(unlocked).encode())
    except Denied as denied:
        if not is_forbidden(denied):
            raise
        if "Group:" not in denied.remark:
            return False
        return _permitted(
            connection, codes.PULL_MESSAGE, browsing_fields(topic, 0, 0, group=group), of="Topic:"
        )
    by_key = {"topic": topic, "key": _PROBE, "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"}
    return _permitted(connection, codes.QUERY_MESSAGE, by_key)


def _may_publish(connection: Connection, topic: str) -> bool:
    fields = send_fields(_PROBE, Outgoing(topic, b"-", {}), _NO_QUEUE, 0, "")
    return _permitted(connection, codes.SEND_MESSAGE, fields, b"-")


def _permitted(connection: Connection, code: int, fields: Fields, body: bytes = b"", of: str = "") -> bool:
    """Return whether a request was not refused for want of a right; any other answer means that it was allowed."""
    try:
        connection.call(code, fields, body)
    except Denied as denied:
        return not (is_forbidden(denied) and of in denied.remark)
    return True
