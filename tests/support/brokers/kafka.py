"""Kafka under the adapter suite: a real server behind a proxy that cuts and refuses, or one that is really killed."""

from contextlib import suppress
from urllib.parse import urlsplit
from uuid import uuid4

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import Adapter, AdapterScope
from oncemq.testing.adapter_suite import AdapterHarness, Topic
from oncemq.testing.tcp_proxy import LOOPBACK, TcpProxy
from oncemq_adapters.kafka import KafkaAdapter
from oncemq_adapters.kafka.address import Address
from services.servers.kafka import Kafka
from services.waiting import wait_until
from support.patience import PATIENCE

SCOPE = AdapterScope("tests", "kafka", SystemClock())
QUICK = {"publish_timeout": "2s", "connect_timeout": "5s", "session_timeout": "6s", "handover": "1s"}
"""Times fit for members that tests kill."""


def adapter_on(url: str, **options: object) -> KafkaAdapter:
    """Return an adapter for the cluster at `url`."""
    return KafkaAdapter.build(url, options, SCOPE)


def brokers_of(address: Address, count: int) -> None:
    """Return when so many brokers of a cluster live."""
    client = AdminClient(address.client("tests"))

    def living() -> bool:
        with suppress(KafkaException):
            return len(client.list_topics(timeout=5).brokers) == count
        return False

    assert wait_until(living, seconds=60 * PATIENCE), f"there are not {count} brokers"


class SharedKafka(AdapterHarness):
    """A server, without faults.

    Args:
        url: of the server.
        options: of the broker, besides those for quick tests.
    """

    adapter_class = KafkaAdapter
    patience = 40.0
    unroutable = unreachable = unwelcome = stop = start = cut = None  # type: ignore[assignment]

    def __init__(self, url: str, **options: object) -> None:
        self.url = url
        # A group is one for all topics, and tests run at the same time.
        self.options = {**QUICK, "namespace": f"t{uuid4().hex[:8]}.", **options}

    def topic(self, name: str) -> Topic:
        """Return a topic of two partitions."""
        return Topic(f"{name}-{uuid4().hex[:8]}", {"partitions": 2})


class OwnKafka(AdapterHarness):
    """A server of the tests' own, behind a proxy on the port that it tells; an outage is a proxy that refuses."""

    adapter_class = KafkaAdapter
    patience = 40.0

    def __init__(self, server: Kafka) -> None:
        self.server = server
        self.url = server.proxied_url
        # A group is one for all topics: tests that follow each other would wait for members that died.
        self.options = {**QUICK, "namespace": f"t{uuid4().hex[:8]}."}
        ports = server.settings.ports
        self.proxy = TcpProxy(LOOPBACK, ports["proxied"], ports["proxy"])
        self.secret = server.settings.password
        closed = TcpProxy(LOOPBACK, 1)
        closed.close()
        self.address = closed.address
        self._closed_port = closed.port

    def topic(self, name: str) -> Topic:
        """Return a topic with few partitions."""
        return Topic(f"{name}-{uuid4().hex[:8]}", {"partitions": 4})

    def unroutable(self) -> Topic:
        """Return a topic that no one has made."""
        return self.topic("no-consumer")

    def unreachable(self) -> Adapter:
        """Return an adapter for a port where no one listens."""
        login = urlsplit(self.url)
        url = f"kafka://{login.username}:{login.password}@{LOOPBACK}:{self._closed_port}"
        return adapter_on(url, connect_timeout="1s")

    def unwelcome(self) -> Adapter:
        """Return an adapter with a wrong password."""
        self.secret = "wrong-and-secret"
        return self.make_adapter(password=self.secret)

    def stop(self) -> None:
        """Reset every connection and take no new ones."""
        self.proxy.refuse()

    def start(self) -> None:
        """Take connections again."""
        self.proxy.accept()

    def cut(self) -> None:
        """Reset every connection."""
        self.proxy.cut()
