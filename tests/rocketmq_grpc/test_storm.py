"""What is done to rocketmq:// is done through a proxy: deaths at points of a message's way, a storm, many messages."""

import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from services.servers.rocketmq import RocketMQ
from storm.attack.grid import attack
from storm.attack.killer import POINTS
from storm.rocketmq.havoc import RocketField, kill_both, kill_broker
from storm.rocketmq.storm import LONG, messages_of, storm
from support.brokers.places import Place
from support.brokers.rocketmq_grpc import adapter_on
from support.brokers.rocketmq_memory import stay_flat
from support.servers import own_server, url_from

VARIABLE = f"{RocketMQ.variable}_GRPC"
MESSAGES = messages_of(50_000, 2500)
KILLS = int(os.environ.get("ONCEMQ_STORM_KILLS", "1"))
SHORT = ("commit-sent", "ack-sent", "retry-sent", "dead-letter-confirmed")
FAULTS = {"broker and proxy killed": kill_broker} | ({"name server killed, too": kill_both} if LONG else {})
pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(400 + MESSAGES // 20 + 200 * KILLS)]


def with_names(url: str, name_server_url: str) -> str:
    """Return the proxy's URL with its name servers, and leases that end soon after their holder has died."""
    names = urlsplit(name_server_url)
    return f"{url}?name_servers={names.hostname}:{names.port}&lease=20s&poll=1s"


@pytest.fixture
def url(rocketmq_url: str) -> str:
    """The shared proxy."""
    return with_names(url_from(VARIABLE), rocketmq_url)


def test_a_storm_loses_and_doubles_nothing(postgresql_database: str, fresh: str, tmp_path: Path) -> None:
    """Members die, freeze, join and leave, broker and proxy die; nothing is ordered through a proxy."""
    with own_server(RocketMQ) as server:
        place = Place(with_names(server.urls[VARIABLE], server.url), postgresql_database, fresh, tmp_path)
        storm(
            RocketField(server, None, place),
            FAULTS,
            MESSAGES,
            every=3.0,
            rate=400.0 if LONG else 150.0,
            # What a killed member held, an app's leases being extended by a minute, comes so late.
            idle="65s",
            ordered=False,
        )


def test_a_death_at_any_point_loses_and_doubles_nothing(
    url: str, postgresql_database: str, fresh: str, tmp_path: Path
) -> None:
    """Each point kills as often as asked; the oracle finds every message once where it belongs."""
    place = Place(url, postgresql_database, fresh, tmp_path)
    points = POINTS if LONG else SHORT
    attack(place, points, KILLS, "grid rocketmq+grpc", idle="25s", repeated=40, patience=60)


def test_memory_is_flat(url: str, fresh: str) -> None:
    """What is resident at the end is what was resident when all was warm."""
    stay_flat(adapter_on(url), fresh)
