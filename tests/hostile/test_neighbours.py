"""One message in a hundred is hostile: the others are applied, once each, and at least half as fast as without."""

from pathlib import Path

import pytest

from oncemq_adapters.rocketmq import RocketMQAdapter
from support.hostile.brokers import SCOPE, HostileBroker, HostileEmbedded, HostileRabbitMQ, HostileRocketMQ
from support.hostile.journey import LONG, SEED
from support.hostile.kafka import HostileKafka
from support.hostile.neighbours import neighbours

pytestmark = pytest.mark.timeout(1800 if LONG else 120)


def test_neighbours_on_the_embedded_broker(tmp_path: Path) -> None:
    """All healthy ones are applied, each hostile one is a dead letter that can be shown."""

    def make(folder: Path) -> HostileBroker:
        return HostileEmbedded(folder)

    neighbours("embedded", make, tmp_path, SEED)


def test_neighbours_on_rabbitmq(rabbitmq_url: str, tmp_path: Path) -> None:
    """All healthy ones are applied, each hostile one is a dead letter that can be shown."""
    neighbours("rabbitmq", lambda _: HostileRabbitMQ(rabbitmq_url), tmp_path, SEED)


@pytest.mark.long_form("ONCEMQ_HOSTILE=long")
def test_neighbours_on_kafka(kafka_url: str, tmp_path: Path) -> None:
    """All healthy ones are applied, each hostile one is a dead letter that can be shown."""
    neighbours("kafka", lambda _: HostileKafka(kafka_url), tmp_path, SEED)


def test_neighbours_on_rocketmq(rocketmq_url: str, tmp_path: Path) -> None:
    """All healthy ones are applied, each hostile one is a dead letter that can be shown."""

    def make(_: Path) -> HostileBroker:
        return HostileRocketMQ(rocketmq_url, lambda: RocketMQAdapter.build(rocketmq_url, {}, SCOPE))

    neighbours("rocketmq", make, tmp_path, SEED)
