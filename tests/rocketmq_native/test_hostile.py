"""Arbitrary messages of RocketMQ through librocketmq: dead letters that can be shown and replayed byte by byte."""

from pathlib import Path

import pytest

from oncemq_adapters.rocketmq.native import NativeRocketMQAdapter
from support.hostile_brokers import SCOPE, HostileRocketMQ
from support.hostile_journey import LONG, SEED, journey

HEALTHY, HOSTILE = (2000, 2000) if LONG else (40, 40)


@pytest.mark.timeout(3600 if LONG else 180)
def test_any_message_of_rocketmq(rocketmq_native_url: str, tmp_path: Path) -> None:
    """Whatever properties it has, and however its body is packed: the library dies of some, and its group goes on."""
    broker = HostileRocketMQ(
        rocketmq_native_url, lambda: NativeRocketMQAdapter.build(rocketmq_native_url, {}, SCOPE)
    )
    journey(broker, tmp_path, HEALTHY, HOSTILE, SEED)
