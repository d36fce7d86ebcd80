"""Arbitrary messages that a broker lets through end as dead letters that can be shown and replayed byte by byte."""

from pathlib import Path

import pytest

from oncemq_adapters.rocketmq import RocketMQAdapter
from support.hostile.brokers import SCOPE, HostileEmbedded, HostileRabbitMQ, HostileRocketMQ
from support.hostile.journey import LONG, SEED, journey
from support.hostile.kafka import HostileKafka

HEALTHY, HOSTILE = (2000, 2000) if LONG else (40, 80)

pytestmark = pytest.mark.timeout(3600 if LONG else 120)


def test_any_message_of_the_embedded_broker(tmp_path: Path) -> None:
    """Whatever text headers, key and id are made of."""
    journey(HostileEmbedded(tmp_path), tmp_path, HEALTHY, HOSTILE, SEED)


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_any_message_of_rabbitmq(rabbitmq_url: str, tmp_path: Path, queue_type: str) -> None:
    """Whatever types, sizes and bytes its properties have."""
    journey(HostileRabbitMQ(rabbitmq_url, queue_type), tmp_path, HEALTHY, HOSTILE, SEED)


def test_any_message_of_kafka(kafka_url: str, tmp_path: Path) -> None:
    """Whatever bytes its key and headers are, with a header twice or without a value, and without a body."""
    journey(HostileKafka(kafka_url), tmp_path, HEALTHY, HOSTILE, SEED)


def test_any_message_of_rocketmq(rocketmq_url: str, tmp_path: Path) -> None:
    """Whatever properties it has, RocketMQ's own included, and however its body is packed."""
    broker = HostileRocketMQ(rocketmq_url, lambda: RocketMQAdapter.build(rocketmq_url, {}, SCOPE))
    journey(broker, tmp_path, HEALTHY, HOSTILE, SEED)
