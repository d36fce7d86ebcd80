"""These tests need rocketmq-python-client, which cannot live beside its namesakes: `make test-rocketmq-grpc` runs them."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import pytest

from oncemq.testing.adapter_suite.bench import Bench
from services.servers.rocketmq import RocketMQ
from support.servers import url_from


def _installed() -> bool:
    try:
        version("rocketmq-python-client")
    except PackageNotFoundError:
        return False
    return True


collect_ignore_glob = [] if _installed() else ["test_*.py"]


@pytest.fixture
def bench(rocketmq_url: str) -> Iterator[Bench]:
    """Return a bench on the shared proxy."""
    # This file is read also where the package is not installed.
    from support.brokers.rocketmq_grpc import ProxiedGrpc  # noqa: PLC0415

    harness = ProxiedGrpc(url_from(f"{RocketMQ.variable}_GRPC"), rocketmq_url)
    bench = Bench(harness)
    yield bench
    bench.close_all()
    harness.close()
