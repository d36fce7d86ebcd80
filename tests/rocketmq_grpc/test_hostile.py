"""Arbitrary messages of RocketMQ through its proxy: dead letters that can be shown and replayed byte by byte."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from services.servers.rocketmq import RocketMQ
from support.brokers.rocketmq_grpc import adapter_on
from support.hostile.brokers import HostileRocketMQ
from support.hostile.journey import LONG, SEED, assert_signed_attempts_count, journey
from support.hostile.neighbours import neighbours
from support.servers import url_from

HEALTHY, HOSTILE = (2000, 2000) if LONG else (40, 40)


def hostile(url: str) -> HostileRocketMQ:
    """Return the shared broker with consumers behind its proxy."""
    proxy, servers = url_from(f"{RocketMQ.variable}_GRPC"), urlsplit(url)
    options: dict[str, Any] = {"name_servers": [f"{servers.hostname}:{servers.port}"]}
    return HostileRocketMQ(url, lambda: adapter_on(proxy, **options), message_type="MIXED")


@pytest.mark.timeout(3600 if LONG else 180)
def test_any_message_of_rocketmq(rocketmq_url: str, tmp_path: Path) -> None:
    """Whatever properties it has: a proxy takes fewer of them in copies than a broker takes of a producer."""
    journey(hostile(rocketmq_url), tmp_path, HEALTHY, HOSTILE, SEED)


@pytest.mark.timeout(1800 if LONG else 180)
def test_neighbours(rocketmq_url: str, tmp_path: Path) -> None:
    """All healthy ones are applied, each hostile one is a dead letter that can be shown."""
    neighbours("rocketmq+grpc", lambda _: hostile(rocketmq_url), tmp_path, SEED)


def test_signed_attempts_count(rocketmq_url: str, tmp_path: Path) -> None:
    """With `history_key` a message that always fails is tried three times, and then it is a dead letter."""
    assert_signed_attempts_count(hostile(rocketmq_url), tmp_path)
