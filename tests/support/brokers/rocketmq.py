"""RocketMQ under the adapter suite: real servers behind proxies that cut and refuse, or ones that are really killed."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import Adapter, AdapterScope
from oncemq.testing.adapter_suite import AdapterHarness, Topic
from oncemq.testing.tcp_proxy import LOOPBACK, TcpProxy
from oncemq_adapters.rocketmq import RocketMQAdapter
from oncemq_adapters.rocketmq.address import parse_address
from oncemq_adapters.rocketmq_client.connections import Routes
from support.brokers.rocketmq_queues import send_hostile

SCOPE = AdapterScope("tests", "rocket", SystemClock())


def adapter_on(url: str, **options: Any) -> RocketMQAdapter:
    """Return an adapter for the servers behind the name server at `url`."""
    return RocketMQAdapter.build(url, options, SCOPE)


def through(url: str, port: int) -> str:
    """Return `url` with another port on this machine."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.username}:{parts.password}@{LOOPBACK}:{port}"


def broker_address(url: str) -> str:
    """Return where the only broker listens."""
    routes = Routes(parse_address(url, {}))
    try:
        return next(iter(routes.brokers().values()))
    finally:
        routes.close()


class TwoDoors(AdapterHarness):
    """Shared servers, in a namespace of each test's own, behind two doors; an outage is a door that refuses.

    Attributes:
        names: the door before the name server.
        broker: the door before the broker.
        no one: a port where no one listens.
    """

    names: TcpProxy
    broker: TcpProxy
    closed_port: int

    def topic(self, name: str) -> Topic:
        """Return a topic with few queues."""
        return Topic(f"{name}-{uuid4().hex[:8]}", {"queues": 4})

    def send_hostile(self, topic: Topic, publisher: Adapter) -> Sequence[bytes]:
        """Store RocketMQ's own properties as a producer may write them."""
        del publisher
        return send_hostile(self.url, f"{self.options['namespace']}%{topic.name}")

    def unroutable(self) -> Topic:
        """Return a topic that no one has made."""
        return self.topic("no-consumer")

    def unreachable(self) -> Adapter:
        """Return an adapter for a port where no one listens."""
        return self.adapter_class.build(through(self.url, self.closed_port), {}, SCOPE)

    def unwelcome(self) -> Adapter:
        """Return an adapter with a wrong secret key."""
        self.secret = "wrong-and-secret"
        return self.make_adapter(password=self.secret)

    def stop(self) -> None:
        """Reset every connection and take no new ones."""
        self.names.refuse()
        self.broker.refuse()

    def start(self) -> None:
        """Take connections again."""
        self.broker.accept()
        self.names.accept()

    def cut(self) -> None:
        """Reset every connection."""
        self.names.cut()
        self.broker.cut()

    def close(self) -> None:
        """Stop the doors."""
        self.names.close()
        self.broker.close()


class ProxiedRocketMQ(TwoDoors):
    """RocketMQ by our own client, which is told where the broker is really reached."""

    adapter_class = RocketMQAdapter

    def __init__(self, url: str, **options: Any) -> None:
        parts = urlsplit(url)
        broker = broker_address(url)
        self.names = TcpProxy(LOOPBACK, parts.port or 9876)
        self.broker = TcpProxy(LOOPBACK, int(broker.rpartition(":")[2]))
        self.url = through(url, self.names.port)
        self.options: Mapping[str, Any] = {
            "addresses": {broker: self.broker.address},
            "namespace": f"t{uuid4().hex[:10]}",
            "publish_timeout": "2s",
            "connect_timeout": "1s",
            **options,
        }
        self.secret = parts.password or ""
        closed = TcpProxy(LOOPBACK, 1)
        closed.close()
        self.closed_port, self.address = closed.port, closed.address
