"""RocketMQ passes the adapter suite over its remoting protocol, and its outages again on a broker that is killed."""

from collections.abc import Iterator

import pytest

from oncemq.testing.adapter_suite import AdapterSuite
from support.brokers.rocketmq import ProxiedRocketMQ


class TestRocketMQAdapter(AdapterSuite):
    """On the shared servers."""

    @pytest.fixture
    def harness(self, rocketmq_url: str) -> Iterator[ProxiedRocketMQ]:
        """Return proxies of this test's own before the shared servers."""
        harness = ProxiedRocketMQ(rocketmq_url)
        yield harness
        harness.close()
