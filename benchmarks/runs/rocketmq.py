"""RocketMQ's part of a measurement: a topic that is filled before, and what of it is left for the group.

Messages are what a plain producer sends, as RabbitMQ's are: a body, its type, and what the protocol asks for.
"""

import json
from datetime import timedelta

from benchmarks.runs.adapter_topic import Topic, send_all
from benchmarks.stage.servers import ROOT

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import AdapterScope, Subscription
from oncemq_adapters.rocketmq import RocketMQAdapter
from oncemq_adapters.rocketmq.names import parse_topic
from oncemq_adapters.rocketmq.native.groups import members, register
from oncemq_adapters.rocketmq.remoting.operations import Operations
from oncemq_adapters.rocketmq_client.properties import UNIQUE_ID
from oncemq_adapters.rocketmq_client.protocol import Outgoing

QUEUES = 8


def publish(url: str, name: str, bodies: list[dict[str, object]]) -> None:
    """Fill a fresh topic with JSON bodies, and have its group begin with the first; topic and group are called alike."""
    adapter = _adapter(url)
    try:
        adapter.prepare([_subscription(name)])
        desk = adapter._opened_desk()
        register(desk.routes, desk.brokers, parse_topic(name, {}, ""), name)
        send_all(desk.producer.send, [_plain(desk, name, body) for body in bodies])
    finally:
        adapter.close(grace=timedelta(seconds=5))


def topic(url: str, name: str) -> Topic:
    """Return what looks at one topic and its group."""
    adapter = _adapter(url)
    adapter.prepare(())
    desk = adapter._opened_desk()

    def counted() -> int:
        return max(len(members(desk.brokers, broker, name)) for broker in desk.routes.brokers())

    return Topic(adapter, _subscription(name), counted)


def java(source: str) -> list[str]:
    """Return the command that runs a Java program of one file on the official client."""
    jars = sorted((ROOT / ".services" / "jars").glob("rocketmq-*"))
    classes = f"{jars[-1]}/*" if jars else "no-jars"
    return ["java", "-Xmx512m", "-Dfile.encoding=UTF-8", "-cp", classes, f"benchmarks/peers/{source}"]


def python_with(driver: str) -> str:
    """Return the Python of the environment that has the package of a driver; nothing else may live beside it."""
    return str(ROOT / f".venv-rocketmq-{driver}" / "bin" / "python")


def _plain(desk: Operations, name: str, body: dict[str, object]) -> Outgoing:
    properties = {UNIQUE_ID: desk.producer.unique_id(), "WAIT": "true", "content-type": "application/json"}
    return Outgoing(name, json.dumps(body).encode(), properties)


def _adapter(url: str) -> RocketMQAdapter:
    return RocketMQAdapter.build(url, {}, AdapterScope("bench", "rocketmq", SystemClock()))


def _subscription(name: str) -> Subscription:
    return Subscription("bench", name, name, {"create": True, "queues": QUEUES})
