"""RabbitMQ under the adapter suite: a real server behind a proxy that cuts and refuses, or one that is really killed."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import pika

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import Adapter, AdapterScope
from oncemq.testing.adapter_suite import AdapterHarness, Topic
from oncemq.testing.tcp_proxy import LOOPBACK, TcpProxy
from oncemq_adapters.rabbitmq import RabbitMQAdapter
from services.container import Container
from services.server import Server
from support.hostile.amqp import MESSAGES, send


def adapter_on(url: str, **options: Any) -> RabbitMQAdapter:
    """Return an adapter for the server at `url`."""
    return RabbitMQAdapter.build(url, options, AdapterScope("tests", "rabbit", SystemClock()))


def through(url: str, port: int) -> str:
    """Return `url` with another port on this machine."""
    parts = urlsplit(url)
    login = f"{parts.username}:{parts.password}@" if parts.username else ""
    return f"{parts.scheme}://{login}{LOOPBACK}:{port}{parts.path}"


class ProxiedRabbitMQ(AdapterHarness):
    """The shared server; an outage is a proxy that refuses."""

    adapter_class = RabbitMQAdapter

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        parts = urlsplit(url)
        self.proxy = TcpProxy(parts.hostname or LOOPBACK, parts.port or 5672)
        self.url = through(url, self.proxy.port)
        self.options = {"publish_timeout": "2s", **options}
        self.secret = parts.password if parts.password != parts.username else ""
        self._closed = TcpProxy(LOOPBACK, 1)
        self._closed.close()
        self.address = self._closed.address

    def send_hostile(self, topic: Topic, publisher: Adapter) -> Sequence[bytes]:
        """Publish properties of every type and size that RabbitMQ takes."""
        del publisher
        connection = connect(self.url)
        channel = connection.channel()
        channel.confirm_delivery()
        for name, raw in MESSAGES.items():
            send(channel, topic.options.get("exchange", "oncemq"), topic.name, raw, name.encode())
        connection.close()
        return [name.encode() for name in MESSAGES]

    def unroutable(self) -> Topic:
        """Return a topic that no queue is bound to."""
        return self.topic("no-consumer")

    def unreachable(self) -> Adapter:
        """Return an adapter for a port where no one listens."""
        return adapter_on(through(self.url, self._closed.port))

    def unwelcome(self) -> Adapter:
        """Return an adapter with a wrong password."""
        self.secret = "wrong-and-secret"
        return adapter_on(self.url, password=self.secret)

    def stop(self) -> None:
        """Reset every connection and take no new ones."""
        self.proxy.refuse()

    def start(self) -> None:
        """Take connections again."""
        self.proxy.accept()

    def cut(self) -> None:
        """Reset every connection."""
        self.proxy.cut()


class OwnRabbitMQ(ProxiedRabbitMQ):
    """A server of the test's own; an outage is SIGKILL."""

    patience = 60.0

    def __init__(self, server: Server | Container, options: Mapping[str, Any]) -> None:
        super().__init__(server.url, options)
        self.server = server

    def stop(self) -> None:
        """SIGKILL it."""
        self.server.kill()

    def start(self) -> None:
        """Start it again on its data."""
        self.server.start()


def connect(url: str) -> Any:
    """Return a plain connection, to look at the server from outside."""
    return pika.BlockingConnection(pika.URLParameters(url))
