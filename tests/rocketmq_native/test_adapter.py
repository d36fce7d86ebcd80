"""librocketmq passes the adapter suite."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import AdapterScope
from oncemq.testing.adapter_suite import AdapterSuite
from oncemq_adapters.rocketmq.native import NativeRocketMQAdapter
from support.brokers.rocketmq_native import ProxiedNativeRocketMQ
from support.facts import facts_of


@pytest.mark.timeout(400)  # twice the harness's patience, at most
class TestNativeRocketMQAdapter(AdapterSuite):
    """On the shared servers."""

    @pytest.fixture
    def harness(self, rocketmq_native_url: str) -> Iterator[ProxiedNativeRocketMQ]:
        """Return proxies of this test's own before the shared servers."""
        harness = ProxiedNativeRocketMQ(rocketmq_native_url)
        yield harness
        harness.close()


def test_check_connect_finds_what_is_missing(rocketmq_native_url: str) -> None:
    """It asks over the remoting protocol, without the library."""
    adapter = NativeRocketMQAdapter.build(
        rocketmq_native_url, {}, AdapterScope("tests", "native", SystemClock())
    )
    try:
        adapter.prepare(())
        assert adapter.examine(facts_of("absent-topic", "absent-group")) == []
        (problem,) = adapter.examine(facts_of("absent-topic", "absent-group", options={"create": False}))
    finally:
        adapter.close(grace=timedelta(seconds=1))
    assert "topic 'absent-topic' does not exist" in problem.text
