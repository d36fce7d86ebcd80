"""A proxy of this module's own, with a certificate of our authority."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from oncemq.contracts.adapter import Subscription
from oncemq.errors import BrokerRefused
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rocketmq.grpc import RocketMQGrpcAdapter
from services import catalog
from services.ports import LOOPBACK
from support.brokers.rocketmq_grpc import adapter_on
from support.tls.certificates import Authority
from support.tls.servers import TlsRocketMQ

# One server for all of them, however many processes run tests.
pytestmark = [pytest.mark.server, pytest.mark.timeout(240)]


class Trusted:
    """The server, and the authorities that clients may trust."""

    def __init__(self, folder: Path) -> None:
        ours = Authority(folder, "ours")
        self.ca, self.other_ca = str(ours.file), str(Authority(folder, "other-authority").file)
        self.servers = catalog.OwnServers(catalog.FOLDER)
        server = self.servers.make(TlsRocketMQ)
        assert isinstance(server, TlsRocketMQ)
        server.certificate = ours.issue("right")
        self.server = server

    def adapter(self, host: str, **options: Any) -> RocketMQGrpcAdapter:
        """Return an adapter that asks for the proxy by this name, and finds it by it wherever a route leads."""
        ports = self.server.settings.ports
        return adapter_on(
            self.server.url_for(host),
            name_servers=[f"{LOOPBACK}:{self.server.port}"],
            addresses={f"{LOOPBACK}:{ports['grpc']}": f"{host}:{ports['grpc']}"},
            namespace=f"t{uuid4().hex[:10]}",
            connect_timeout="5s",
            poll="400ms",
            **options,
        )


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trusted]:
    """The server, started."""
    trusted = Trusted(tmp_path_factory.mktemp("tls"))
    try:
        trusted.server.start()
        yield trusted
    finally:
        trusted.servers.remove(trusted.server)


def subscription() -> Subscription:
    """Return a subscription; names are made unique by the namespace."""
    return Subscription("points", "orders", "points", {"queues": 4})


def test_the_whole_way_over_tls(trusted: Trusted) -> None:
    """Publish, receive and settle, with a certificate of our own authority."""
    adapter, sink = trusted.adapter("localhost", ca=trusted.ca), RecordingSink()
    try:
        adapter.open([subscription()], sink)
        adapter.publish("orders", {}, [OutgoingMessage(b"%d" % number) for number in range(20)])
        received = sink.wait_for(20)
        assert sorted(int(delivery.message.body) for delivery in received) == list(range(20))
        assert not adapter.acknowledge(received)
    finally:
        adapter.close(grace=timedelta(seconds=5))


@pytest.mark.parametrize("wrong", ["host", "authority", "system's authorities"])
def test_a_proxy_must_prove_who_it_is(trusted: Trusted, wrong: str) -> None:
    """Another host's certificate, or one of an authority that is not ours, is refused in words that say so."""
    options: dict[str, Any] = {
        "host": {"ca": trusted.ca},
        "authority": {"ca": trusted.other_ca},
        "system's authorities": {"tls": True},
    }[wrong]
    host = LOOPBACK if wrong == "host" else "localhost"
    adapter = trusted.adapter(host, **options)
    try:
        with pytest.raises(BrokerRefused, match=r"TLS with .* does not prove that it is this host") as caught:
            adapter.prepare([subscription()])
        assert f"{host}:{trusted.server.settings.ports['grpc']}" in str(caught.value)
    finally:
        adapter.close(grace=timedelta(seconds=5))
