"""Memory stays where it is, however many messages a process has sent and received on RocketMQ."""

import pytest

from support.brokers.rocketmq import adapter_on
from support.brokers.rocketmq_memory import stay_flat


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_memory_is_flat(rocketmq_url: str, fresh: str) -> None:
    """What is resident at the end is what was resident when all was warm."""
    stay_flat(adapter_on(rocketmq_url), fresh)
