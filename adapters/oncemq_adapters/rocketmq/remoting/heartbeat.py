"""What brokers are told of a client again and again: who it is, and what it consumes or produces."""

import json
from collections.abc import Mapping
from typing import Any

from oncemq_adapters.rocketmq.remoting.allocation import java_hash


def heartbeat_body(
    client: str, group: str, topics: Mapping[str, str], version: int, *, consuming: bool
) -> bytes:
    """Return a consumer's heartbeat.

    Args:
        client: its id.
        group: by its real name.
        topics: subscription expressions by topic.
        version: of the subscriptions.
        consuming: it is a member now; otherwise only the account is proved.
    """
    subscriptions = [_subscription(topic, expression, version) for topic, expression in topics.items()]
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": subscriptions,
        "unitMode": False,
    }
    body = {"clientID": client, "producerDataSet": [], "consumerDataSet": [consumer] if consuming else []}
    return json.dumps(body).encode()


def producer_heartbeat_body(client: str, group: str) -> bytes:
    """Return a producer's heartbeat."""
    body = {"clientID": client, "producerDataSet": [{"groupName": group}], "consumerDataSet": []}
    return json.dumps(body).encode()


def _subscription(topic: str, expression: str, version: int) -> Mapping[str, Any]:
    tags = [] if expression == "*" else expression.split(" || ")
    return {
        "classFilterMode": False,
        "topic": topic,
        "subString": expression,
        "tagsSet": tags,
        "codeSet": [java_hash(tag) for tag in tags],
        "subVersion": version,
        "expressionType": "TAG",
    }
