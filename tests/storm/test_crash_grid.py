"""A process dies at every named point of a message's way, on each pair of broker and database: nothing lost, nothing double."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from storm.attack.grid import attack, die
from storm.attack.killer import POINTS, PROGRESS
from storm.attack.nursery import Nursery
from storm.attack.stage import Settings, Stage
from support.brokers.places import (
    EMBEDDED,
    KAFKA_POSTGRESQL,
    MARIADB,
    POSTGRESQL,
    ROCKETMQ_POSTGRESQL,
    Place,
    make_place,
)

LONG = "ONCEMQ_STORM_KILLS" in os.environ
KILLS = int(os.environ.get("ONCEMQ_STORM_KILLS", "1"))
CHOSEN = os.environ.get("ONCEMQ_STORM_POINTS", "").split()
ON_ROCKETMQ = (*POINTS, PROGRESS) if LONG else (
    "commit-sent",
    "ack-sent",
    "retry-sent",
    "retry-confirmed",
    "dead-letter-sent",
    "dead-letter-confirmed",
    PROGRESS,
    "draining",
)  # fmt: skip
"""In the short form those at which brokers differ."""
ON_MARIADB = POINTS if LONG else (
    "loaded",
    "handler-wrote",
    "saved",
    "before-commit",
    "commit-sent",
    "committed",
    "before-ack",
    "retry-published",
    "dead-letter-published",
    "draining",
)  # fmt: skip
"""In the short form those that have something to do with the database; RabbitMQ's are those of the pair with PostgreSQL."""
ON_KAFKA = (*POINTS, PROGRESS) if LONG else ("commit-sent", "retry-sent", "dead-letter-confirmed", PROGRESS)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180 + 120 * KILLS)]


@pytest.fixture(
    params=[
        EMBEDDED,
        pytest.param(POSTGRESQL, marks=pytest.mark.server),
        pytest.param(MARIADB, marks=pytest.mark.server),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path, fresh: str) -> Iterator[Place]:
    """Each pair of a database and a broker that is told of every message."""
    yield from make_place(request.param, request, tmp_path, fresh)


def test_a_death_at_any_point_loses_and_doubles_nothing(place: Place, request: pytest.FixtureRequest) -> None:
    """Each point kills as often as asked; the oracle finds every message once where it belongs."""
    points = ON_MARIADB if place.database.startswith("mysql") else POINTS
    attack(place, CHOSEN or points, KILLS, request.node.name)


@pytest.mark.server
def test_a_death_at_any_point_loses_and_doubles_nothing_on_rocketmq(
    request: pytest.FixtureRequest, tmp_path: Path, fresh: str
) -> None:
    """The broker is told twice a second how far queues are: a death repeats more, dead letters among them."""
    for place in make_place(ROCKETMQ_POSTGRESQL, request, tmp_path, fresh):
        # Slow enough for brokers to be told of a queue while some of it is at work.
        attack(place, CHOSEN or ON_ROCKETMQ, KILLS, request.node.name, idle="5s", repeated=6, pause=0.03)


@pytest.mark.server
def test_a_death_at_any_point_loses_and_doubles_nothing_on_kafka(
    request: pytest.FixtureRequest, tmp_path: Path, fresh: str
) -> None:
    """Offsets are committed ten times a second: a death repeats what was settled since, a dead letter among it."""
    for place in make_place(KAFKA_POSTGRESQL, request, tmp_path, fresh):
        attack(place, CHOSEN or ON_KAFKA, KILLS, request.node.name, idle="5s", repeated=2, patience=60)


def test_without_a_strategy_the_oracle_sees_the_double_effect(tmp_path: Path, fresh: str) -> None:
    """The same deaths under `none`: the grid would be worth nothing if no one noticed."""
    draw = random.Random(1)
    place = Place(f"embedded:///{tmp_path}/broker.db", f"sqlite:///{tmp_path}/effects.db", fresh, tmp_path)
    with Nursery(tmp_path) as nursery:
        stage = Stage(place, nursery, Settings(strategies="none"))
        publishers = [
            die(stage, number, point, draw, twice=0.0)
            for number, point in enumerate(["committed", "before-ack"])
        ]
        assert [child.wait() for child in publishers] == [0, 0]
        stage.drain()
        verdict = stage.verdict()
    assert "double" in {violation["kind"] for violation in verdict.violations}
