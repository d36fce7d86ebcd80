"""Arbitrary messages of RocketMQ through librocketmq: dead letters that can be shown and replayed byte by byte."""

from pathlib import Path

import pytest

from oncemq_adapters.rocketmq.native import NativeRocketMQAdapter
from support.hostile.brokers import SCOPE, HostileRocketMQ
from support.hostile.journey import LONG, SEED, assert_signed_attempts_count, journey
from support.hostile.neighbours import neighbours

HEALTHY, HOSTILE = (2000, 2000) if LONG else (40, 40)


def hostile(url: str) -> HostileRocketMQ:
    """Return the shared broker with consumers on librocketmq."""
    return HostileRocketMQ(url, lambda: NativeRocketMQAdapter.build(url, {}, SCOPE))


@pytest.mark.timeout(3600 if LONG else 180)
def test_any_message_of_rocketmq(rocketmq_native_url: str, tmp_path: Path) -> None:
    """Whatever properties it has, and however its body is packed: the library dies of some, and its group goes on."""
    journey(hostile(rocketmq_native_url), tmp_path, HEALTHY, HOSTILE, SEED)


@pytest.mark.timeout(1800 if LONG else 180)
def test_neighbours(rocketmq_native_url: str, tmp_path: Path) -> None:
    """All healthy ones are applied, each hostile one is a dead letter that can be shown."""
    neighbours("rocketmq+native", lambda _: hostile(rocketmq_native_url), tmp_path, SEED)


def test_signed_attempts_count(rocketmq_native_url: str, tmp_path: Path) -> None:
    """With `history_key` a message that always fails is tried three times, and then it is a dead letter."""
    assert_signed_attempts_count(hostile(rocketmq_native_url), tmp_path)
