"""Everything at once on RocketMQ: members die, freeze, join and leave, servers die, and each message takes effect once."""

import pytest

from storm.rocketmq.havoc import FAULTS, SHORT, RocketField
from storm.rocketmq.storm import LONG, messages_of, storm

MESSAGES = messages_of(200_000, 1500)
pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(400 + MESSAGES // 40)]


def test_nothing_is_lost_or_doubled_in_a_storm_on_rocketmq(rocketmq_field: RocketField) -> None:
    """Into PostgreSQL; 30 % are sent twice, some fail at first or for good, and every key's effects rise in order."""
    faults = FAULTS if LONG else {name: FAULTS[name] for name in SHORT}
    storm(
        rocketmq_field,
        faults,
        MESSAGES,
        rate=1000.0 if LONG else 150.0,
        rising=True,
        retries_lose_place=True,
    )
