"""librocketmq passes the adapter suite."""

from collections.abc import Iterator

import pytest

from oncemq.testing.adapter_suite import AdapterSuite
from support.rocketmq_native import ProxiedNativeRocketMQ


class TestNativeRocketMQAdapter(AdapterSuite):
    """On the shared servers."""

    @pytest.fixture
    def harness(self, rocketmq_native_url: str) -> Iterator[ProxiedNativeRocketMQ]:
        """Return proxies of this test's own before the shared servers."""
        harness = ProxiedNativeRocketMQ(rocketmq_native_url)
        yield harness
        harness.close()
