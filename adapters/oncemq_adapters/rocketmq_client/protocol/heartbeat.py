"""Heartbeats of a client: who it is, and what it consumes or produces."""

import json
import struct
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from oncemq_adapters.rocketmq_client.names import Selection

SHARING: Final = "CLUSTERING"
BROADCASTING: Final = "BROADCASTING"
"""Java's words for whether members of a group share its messages, or each gets all."""


def heartbeat_body(
    client: str,
    group: str,
    topics: Mapping[str, Selection],
    version: int,
    *,
    consuming: bool,
    model: str = SHARING,
) -> bytes:
    """Return a consumer's heartbeat.

    Args:
        client: its id.
        group: by its real name.
        topics: what is subscribed to, by topic.
        version: of the subscriptions.
        consuming: it is a member now; otherwise only the account is proved.
        model: `SHARING` or `BROADCASTING`.
    """
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": model,
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": _subscriptions(topics, version),
        "unitMode": False,
    }
    body = {"clientID": client, "producerDataSet": [], "consumerDataSet": [consumer] if consuming else []}
    return json.dumps(body).encode()


class HeldQueue(Protocol):
    """A queue that a member consumes.

    Attributes:
        topic: by its real name.
        broker: by its name.
        number: there.
        committed: the offset that the broker has confirmed; None = not begun.
        draining: it belongs to another member, and what is out is settled yet.
        pulled_at: when the last pull began, monotonic.
    """

    topic: str
    broker: str
    number: int
    committed: int | None
    draining: bool
    pulled_at: float

    @property
    def work(self) -> Any:
        """What was done in it."""
        ...

    def cached(self) -> tuple[int, int, int, int]:
        """Return the lowest and highest unsettled offset, how many there are, and the bytes of their bodies."""
        ...


def running_info_body(
    topics: Mapping[str, Selection],
    version: int,
    queues: Iterable[HeldQueue] = (),
    rates: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
    *,
    fifo: bool,
    servers: str = "",
    model: str = SHARING,
) -> bytes:
    """Return the answer to an administrator's tool about a consumer, in the words of Java's client.

    Args:
        topics: what is subscribed to, by topic.
        version: of the subscriptions: when it started, in milliseconds since the epoch.
        queues: what it consumes now.
        rates: over the last minute, by topic.
        fifo: its queues are locked.
        servers: the name servers that it asks.
        model: `SHARING` or `BROADCASTING`.
    """
    properties = {
        "PROP_NAMESERVER_ADDR": servers,
        "PROP_THREADPOOL_CORE_SIZE": "1",
        "PROP_CLIENT_VERSION": "OnceMQ",
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "messageModel": model,
        "PROP_CONSUMEORDERLY": str(fifo).lower(),
        "PROP_CONSUMER_START_TIMESTAMP": str(version),
    }
    info = {
        "properties": properties,
        "subscriptionSet": _subscriptions(topics, version),
        "statusTable": rates,
    }
    # Objects as keys are no JSON, but what Java's tools write and read.
    table = ",".join(f"{_key_of(queue)}:{_state_of(queue, fifo=fifo)}" for queue in queues)
    return f'{json.dumps(info)[:-1]}, "mqTable": {{{table}}}}}'.encode()


def _key_of(queue: HeldQueue) -> str:
    return json.dumps({"brokerName": queue.broker, "queueId": queue.number, "topic": queue.topic})


def _state_of(queue: HeldQueue, *, fifo: bool) -> str:
    first, last, count, size = queue.cached()
    return json.dumps(
        {
            "commitOffset": queue.committed or 0,
            "cachedMsgMinOffset": first,
            "cachedMsgMaxOffset": last,
            "cachedMsgCount": count,
            "cachedMsgSizeInMiB": size >> 20,
            "droped": queue.draining,
            "locked": fifo,
            "lastPullTimestamp": _milliseconds(queue.pulled_at),
            "lastConsumeTimestamp": _milliseconds(queue.work.settled_at),
        }
    )


def _milliseconds(moment: float) -> int:
    """Return a monotonic moment in milliseconds since the epoch; 0 for none."""
    return round((time.time() - (time.monotonic() - moment)) * 1000) if moment else 0


def producer_heartbeat_body(client: str, group: str) -> bytes:
    """Return a producer's heartbeat."""
    body = {"clientID": client, "producerDataSet": [{"groupName": group}], "consumerDataSet": []}
    return json.dumps(body).encode()


def client_check_body(client: str, group: str, topic: str, chosen: Selection, version: int) -> bytes:
    """Return the question whether a broker can filter as a consumer wants."""
    subscribed = _subscription(topic, chosen, version)
    return json.dumps({"clientId": client, "group": group, "subscriptionData": subscribed}).encode()


def _subscriptions(topics: Mapping[str, Selection], version: int) -> list[Mapping[str, Any]]:
    return [_subscription(topic, chosen, version) for topic, chosen in topics.items()]


def _subscription(topic: str, chosen: Selection, version: int) -> Mapping[str, Any]:
    """Return a subscription as Java's client writes it."""
    tags = chosen.text.split(" || ") if chosen.kind == "TAG" and chosen.text != "*" else []
    return {
        "classFilterMode": False,
        "topic": topic,
        "subString": chosen.text,
        "tagsSet": tags,
        "codeSet": [java_hash(tag) for tag in tags],
        "subVersion": version,
        "expressionType": chosen.kind,
    }


def java_hash(text: str) -> int:
    """Return what Java's `hashCode` says of a text; Java's producers choose queues by it."""
    data = text.encode("utf-16-be", "surrogatepass")
    result = 0
    for unit in struct.unpack(f">{len(data) // 2}H", data):
        result = (31 * result + unit) & 0xFFFFFFFF
    return result - (1 << 32) if result >> 31 else result
