"""Arbitrary messages of RocketMQ through its proxy: dead letters that can be shown and replayed byte by byte."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from services.rocketmq import RocketMQ
from support.hostile_brokers import HostileRocketMQ
from support.hostile_journey import LONG, SEED, journey
from support.rocketmq_grpc import adapter_on
from support.servers import url_from

HEALTHY, HOSTILE = (2000, 2000) if LONG else (40, 40)


@pytest.mark.timeout(3600 if LONG else 180)
def test_any_message_of_rocketmq(rocketmq_url: str, tmp_path: Path) -> None:
    """Whatever properties it has: a proxy takes fewer of them in copies than a broker takes of a producer."""
    proxy, servers = url_from(f"{RocketMQ.variable}_GRPC"), urlsplit(rocketmq_url)
    options: dict[str, Any] = {"name_servers": [f"{servers.hostname}:{servers.port}"]}
    broker = HostileRocketMQ(rocketmq_url, lambda: adapter_on(proxy, **options), message_type="MIXED")
    journey(broker, tmp_path, HEALTHY, HOSTILE, SEED)
