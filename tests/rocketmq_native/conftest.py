"""These tests need rocketmq-client-python, which cannot live beside its namesakes: `make test-rocketmq-native` runs them."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from oncemq.testing.adapter_suite.bench import Bench
from support.brokers.rocketmq_native import ProxiedNativeRocketMQ

collect_ignore_glob = [] if find_spec("rocketmq") else ["test_*.py"]


@pytest.fixture
def bench(rocketmq_native_url: str) -> Iterator[Bench]:
    """Return a bench on the shared servers."""
    harness = ProxiedNativeRocketMQ(rocketmq_native_url)
    bench = Bench(harness)
    yield bench
    bench.close_all()
    harness.close()
