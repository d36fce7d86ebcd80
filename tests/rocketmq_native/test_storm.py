"""What is done to rocketmq:// is done to librocketmq: deaths at points of a message's way, a storm, many messages."""

import os
from pathlib import Path

import pytest

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import AdapterScope
from oncemq_adapters.rocketmq.native import NativeRocketMQAdapter
from services.servers.rocketmq import RocketMQBroker, RocketMQPair
from storm.attack.grid import attack
from storm.attack.killer import POINTS
from storm.rocketmq.havoc import RocketField, kill_both, kill_broker
from storm.rocketmq.storm import LONG, messages_of, storm
from support.brokers.places import Place
from support.brokers.rocketmq_memory import stay_flat
from support.brokers.rocketmq_queues import assert_joining_broker_is_read
from support.servers import own_server

MESSAGES = messages_of(50_000, 2500)
KILLS = int(os.environ.get("ONCEMQ_STORM_KILLS", "1"))
SHORT = ("commit-sent", "ack-sent", "retry-sent", "dead-letter-confirmed")
FAULTS = {"broker killed": kill_broker} | ({"broker and name server killed": kill_both} if LONG else {})
pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(400 + MESSAGES // 20 + 200 * KILLS)]


def test_a_storm_loses_and_doubles_nothing(postgresql_database: str, fresh: str, tmp_path: Path) -> None:
    """Members die, freeze, join and leave, the broker dies; the library keeps no order, and none is asked for."""
    with own_server(RocketMQBroker) as server:
        url = server.urls[f"{RocketMQBroker.variable}_NATIVE"]
        field = RocketField(server, None, Place(url, postgresql_database, fresh, tmp_path))
        storm(field, FAULTS, MESSAGES, every=4.0, rate=400.0 if LONG else 150.0, ordered=False)


def test_a_death_at_any_point_loses_and_doubles_nothing(
    rocketmq_native_url: str, postgresql_database: str, fresh: str, tmp_path: Path
) -> None:
    """Each point kills as often as asked; the oracle finds every message once where it belongs."""
    place = Place(rocketmq_native_url, postgresql_database, fresh, tmp_path)
    points = POINTS if LONG else SHORT
    attack(place, points, KILLS, "grid rocketmq+native", idle="10s", repeated=40, patience=60)


def test_memory_is_flat(rocketmq_native_url: str, fresh: str) -> None:
    """Of the app and of its process with the library together."""
    scope = AdapterScope("tests", "native", SystemClock())
    # Of a settled message its offset is kept until there are some thousands of the queue to be committed.
    stay_flat(NativeRocketMQAdapter.build(rocketmq_native_url, {}, scope), fresh, most=1.5)


@pytest.mark.long_form("ONCEMQ_STORM_MESSAGES")
def test_queues_of_a_joining_broker_are_read_from_their_beginning() -> None:
    """With `start: last`, too; librocketmq looks for new queues twice a minute."""
    with own_server(RocketMQPair) as servers:
        url = servers.url.replace("rocketmq://", "rocketmq+native://")
        scope = AdapterScope("tests", "joining", SystemClock())
        assert_joining_broker_is_read(servers, lambda: NativeRocketMQAdapter.build(url, {}, scope))
