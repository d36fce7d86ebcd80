"""Small packed bodies do not take a consumer's memory on RocketMQ's remoting protocol."""

from collections.abc import Iterator

import pytest

from oncemq.testing.adapter_suite.bench import Bench
from support.brokers.rocketmq import ProxiedRocketMQ
from support.brokers.rocketmq_memory import assert_unpacked_bytes_are_counted


@pytest.fixture
def bench(rocketmq_url: str) -> Iterator[Bench]:
    """Return a bench on the shared servers."""
    harness = ProxiedRocketMQ(rocketmq_url)
    bench = Bench(harness)
    yield bench
    bench.close_all()
    harness.close()


def test_unpacked_bytes_are_counted(bench: Bench, rocketmq_url: str) -> None:
    """Small packed bodies are held unpacked up to 64 MiB; the rest waits on the broker."""
    assert_unpacked_bytes_are_counted(bench, rocketmq_url)
