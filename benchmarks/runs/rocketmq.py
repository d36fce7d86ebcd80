"""RocketMQ's part of a measurement: a topic that is filled before, and what of it is left for the group.

Messages are what a plain producer sends, as RabbitMQ's are: a body, its type, and what the protocol asks for.
"""

import json
import sys
from datetime import timedelta

from benchmarks.stage.servers import ROOT

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import AdapterScope, Subscription
from oncemq_adapters.rocketmq import RocketMQAdapter
from oncemq_adapters.rocketmq.names import parse_topic
from oncemq_adapters.rocketmq.native.groups import members, register
from oncemq_adapters.rocketmq.properties import UNIQUE_ID
from oncemq_adapters.rocketmq.remoting.operations import Operations
from oncemq_adapters.rocketmq.remoting.protocol.send_request import Outgoing

QUEUES = 8
_AT_ONCE = 4000


def publish(url: str, name: str, bodies: list[dict[str, object]]) -> None:
    """Fill a fresh topic with JSON bodies, and have its group begin with the first; topic and group are called alike."""
    adapter = _adapter(url)
    try:
        adapter.prepare([_subscription(name)])
        desk = adapter._opened_desk()
        register(desk.routes, desk.brokers, parse_topic(name, {}, ""), name)
        for start in range(0, len(bodies), _AT_ONCE):
            errors = desk.producer.send(
                [_plain(desk, name, body) for body in bodies[start : start + _AT_ONCE]]
            )
            refused = [error for error in errors if error is not None]
            if refused:
                raise RuntimeError(f"{len(refused)} messages were not confirmed: {refused[0]}")
    finally:
        adapter.close(grace=timedelta(seconds=5))


class Topic:
    """Looks at one topic and its group, on connections that are kept."""

    def __init__(self, url: str, name: str) -> None:
        self._adapter = _adapter(url)
        self._name = name
        self._adapter.prepare(())
        self._desk = self._adapter._opened_desk()

    def look(self) -> tuple[int, int]:
        """Return how many messages wait, and how many members the group has."""
        ready = self._adapter.depth(_subscription(self._name)) or 0
        return ready, max(
            len(members(self._desk.brokers, broker, self._name)) for broker in self._desk.routes.brokers()
        )

    def dead(self) -> int:
        """Return how many dead letters there are."""
        return sum(1 for _ in self._adapter.dead_letters(_subscription(self._name), sys.maxsize))

    def remove(self) -> None:
        """Disconnect; the test server is thrown away as a whole."""
        self._adapter.close(grace=timedelta(seconds=1))


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
