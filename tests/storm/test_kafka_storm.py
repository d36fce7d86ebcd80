"""Everything at once on Kafka: members die, freeze past their session, join and leave, and each message takes effect once."""

import pytest

from storm.attack.stage import Stage
from storm.kafka.havoc import FAULTS, OF_THREE, OF_THREE_SHORT, SHORT, KafkaField
from storm.rocketmq.storm import LONG, messages_of, storm

MESSAGES = messages_of(200_000, 1200)
pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(400 + MESSAGES // 40)]


def _repeated(stage: Stage) -> int:
    """A death, or a partition that is taken away, between a dead letter and its offset leaves a second one."""
    return sum(stage.fired.values())


def test_nothing_is_lost_or_doubled_in_a_storm_on_kafka(kafka_field: KafkaField) -> None:
    """Into PostgreSQL; 30 % are sent twice, some fail at first or for good, and every key's effects rise in order."""
    storm(
        kafka_field,
        FAULTS if LONG else SHORT,
        MESSAGES,
        rate=1000.0 if LONG else 60.0,
        repeated=_repeated,
        rising=True,
        retries_lose_place=True,
    )


@pytest.mark.parametrize(
    "kafka_trio_field",
    ["classic", pytest.param("consumer", marks=pytest.mark.long_form("ONCEMQ_STORM_MESSAGES"))],
    indirect=True,
)
def test_nothing_is_lost_or_doubled_in_a_storm_on_three_nodes(kafka_trio_field: KafkaField) -> None:
    """The same where two nodes go on without a third, with groups by either protocol."""
    storm(
        kafka_trio_field,
        OF_THREE if LONG else OF_THREE_SHORT,
        MESSAGES if LONG else 800,
        rate=500.0 if LONG else 50.0,
        repeated=_repeated,
        rising=True,
        retries_lose_place=True,
    )
