"""Kafka passes the adapter suite."""

from collections.abc import Iterator

import pytest

from oncemq.testing.adapter_suite import AdapterSuite
from services.servers.kafka import Kafka
from support.brokers.kafka import OwnKafka
from support.servers import own_server


@pytest.fixture(scope="module")
def server() -> Iterator[Kafka]:
    """Start a server that tells clients the address of a test's proxy."""
    with own_server(Kafka) as server:
        yield server


@pytest.mark.server
class TestKafkaAdapter(AdapterSuite):
    """On a server of this module's own, since a broker tells its clients where to connect."""

    @pytest.fixture
    def harness(self, server: Kafka) -> Iterator[OwnKafka]:
        """Return the server behind a proxy of this test's own."""
        harness = OwnKafka(server)
        yield harness
        harness.proxy.close()
