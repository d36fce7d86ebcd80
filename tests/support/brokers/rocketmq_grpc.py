"""RocketMQ behind its gRPC proxy under the adapter suite: connections that can be cut and refused."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import Adapter, AdapterScope
from oncemq.testing.adapter_suite import AdapterHarness, Topic
from oncemq.testing.tcp_proxy import LOOPBACK, TcpProxy
from oncemq_adapters.rocketmq.grpc import RocketMQGrpcAdapter
from support.brokers.rocketmq_queues import send_hostile


def adapter_on(url: str, **options: Any) -> RocketMQGrpcAdapter:
    """Return an adapter for the proxy at `url`."""
    return RocketMQGrpcAdapter.build(url, options, AdapterScope("tests", "rocket", SystemClock()))


def login_of(url: str) -> str:
    """Return the URL's account, as it stands there."""
    return urlsplit(url).netloc.rpartition("@")[0]


class ProxiedGrpc(AdapterHarness):
    """Shared servers, in a namespace of each test's own; an outage is a proxy before the proxy that refuses."""

    adapter_class = RocketMQGrpcAdapter
    patience = 40.0
    silence = 1.5

    def __init__(self, url: str, name_server_url: str, **options: Any) -> None:
        parts, servers = urlsplit(url), urlsplit(name_server_url)
        real = f"{parts.hostname}:{parts.port}"
        self.door = TcpProxy(LOOPBACK, parts.port or 8081)
        self.url = f"rocketmq+grpc://{login_of(url)}@{self.door.address}"
        self.options: Mapping[str, Any] = {
            "addresses": {real: self.door.address},
            "name_servers": [f"{servers.hostname}:{servers.port}"],
            "namespace": f"t{uuid4().hex[:10]}",
            "publish_timeout": "2s",
            "connect_timeout": "2s",
            "poll": "400ms",
            "lease": "8s",
            **options,
        }
        self.secret = parts.password or ""
        self._closed = TcpProxy(LOOPBACK, 1)
        self._closed.close()
        self.address = self._closed.address

    def topic(self, name: str) -> Topic:
        """Return a topic that may hold plain and delayed messages."""
        return Topic(f"{name}-{uuid4().hex[:8]}", {"queues": 4, "message_type": "MIXED"})

    def send_hostile(self, topic: Topic, publisher: Adapter) -> Sequence[bytes]:
        """Store RocketMQ's own properties as a producer may write them."""
        del publisher
        url = f"rocketmq://{login_of(self.url)}@{self.options['name_servers'][0]}"
        return send_hostile(url, f"{self.options['namespace']}%{topic.name}")

    def leasing_adapter(self, lease: timedelta) -> Adapter:
        """Return an adapter with a shorter lease."""
        return self.make_adapter(lease=lease)

    def unroutable(self) -> Topic:
        """Return a topic that no one has made."""
        return self.topic("no-consumer")

    def unreachable(self) -> Adapter:
        """Return an adapter for a port where no one listens."""
        return adapter_on(f"rocketmq+grpc://{login_of(self.url)}@{self.address}", connect_timeout="2s")

    def unwelcome(self) -> Adapter:
        """Return an adapter with a wrong secret key."""
        self.secret = "wrong-and-secret"
        return adapter_on(self.url, **{**self.options, "password": self.secret, "name_servers": []})

    def stop(self) -> None:
        """Reset every connection and take no new ones."""
        self.door.refuse()

    def start(self) -> None:
        """Take connections again."""
        self.door.accept()

    def cut(self) -> None:
        """Reset every connection."""
        self.door.cut()

    def close(self) -> None:
        """Stop the door."""
        self.door.close()
