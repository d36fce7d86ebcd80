"""RocketMQ passes the adapter suite through its gRPC proxy."""

from collections.abc import Iterator

import pytest

from oncemq.testing.adapter_suite import AdapterSuite
from services.servers.rocketmq import RocketMQ
from support.brokers.rocketmq_grpc import ProxiedGrpc
from support.servers import url_from


class TestRocketMQGrpcAdapter(AdapterSuite):
    """On the shared servers."""

    @pytest.fixture
    def harness(self, rocketmq_url: str) -> Iterator[ProxiedGrpc]:
        """Return a door of this test's own before the shared proxy."""
        harness = ProxiedGrpc(url_from(f"{RocketMQ.variable}_GRPC"), rocketmq_url)
        yield harness
        harness.close()
