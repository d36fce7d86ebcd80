"""RocketMQ 4 with `rocketmq://`: no timer wheel but levels of delay, no types of topics, accounts of its own kind."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from oncemq.contracts.capabilities import Capabilities
from oncemq.testing.adapter_suite import DeadLetters, Delivering, Publishing, Retrying
from services.servers.rocketmq_4 import RocketMQ4
from support.brokers.rocketmq import ProxiedRocketMQ
from support.servers import own_server

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]  # the first time its jars are fetched


class OlderRocketMQ(ProxiedRocketMQ):
    """Its delays are levels."""

    @property
    def capabilities(self) -> Capabilities:
        """What the adapter can do with such a server."""
        return replace(super().capabilities, precise_delay=False)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of a server that these tests share."""
    with own_server(RocketMQ4) as server:
        yield server.url


class TestRocketMQ4Adapter(Delivering, Retrying, DeadLetters, Publishing):
    """The parts of the adapter suite in which it might differ."""

    @pytest.fixture
    def harness(self, url: str) -> Iterator[OlderRocketMQ]:
        """Return proxies of this test's own before the server."""
        harness = OlderRocketMQ(url)
        yield harness
        harness.close()
