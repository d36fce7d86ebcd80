"""A process dies at every named point of a message's way, on each pair of broker and database: nothing lost, nothing double."""

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from storm.killer import AT_THE_END, POINTS, fired
from storm.nursery import Child, Nursery
from storm.stage import Settings, Stage, bodies, report, wait_for
from support.places import EMBEDDED, MARIADB, POSTGRESQL, Place, make_place

KILLS = int(os.environ.get("ONCEMQ_STORM_KILLS", "1"))
CHOSEN = os.environ.get("ONCEMQ_STORM_POINTS", "").split() or POINTS
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180 + 120 * KILLS)]

KINDS = {"flaky": 0.1, "reject": 0.1}


@pytest.fixture(
    params=[
        EMBEDDED,
        pytest.param(POSTGRESQL, marks=pytest.mark.server),
        pytest.param(MARIADB, marks=pytest.mark.server),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path, fresh: str) -> Iterator[Place]:
    """Each pair of broker and database."""
    yield from make_place(request.param, request, tmp_path, fresh)


def test_a_death_at_any_point_loses_and_doubles_nothing(place: Place, request: pytest.FixtureRequest) -> None:
    """Each point kills as often as asked; the oracle finds every message once where it belongs."""
    draw = random.Random(KILLS)
    deaths = [point for point in CHOSEN for _ in range(KILLS)]
    draw.shuffle(deaths)
    with Nursery(place.folder) as nursery:
        stage = Stage(place, nursery, Settings(attempts=20))
        for number, point in enumerate(deaths):
            _die(stage, number, point, draw)
        stage.drain()
        verdict = stage.verdict(copies=len(deaths))
    report(request.node.name, verdict, kills=len(stage.deaths()))
    assert verdict.violations == [], f"{verdict}\n{nursery.said()}"
    assert verdict.counts["suspects left"] <= len(deaths)


def _die(stage: Stage, number: int, point: str, draw: random.Random, *, twice: float = 0.3) -> Child:
    """Give a process work, and have it die at `point`; what it leaves is the next one's. Returns who publishes."""
    before = fired(stage.deaths(), point)
    passes = 1 if point in AT_THE_END or "letter" in point or "retry" in point else draw.randint(1, 3)
    publisher = stage.publisher(
        stage.write(bodies(40, prefix=f"m{number}-", kinds=KINDS, twice=twice, seed=number))
    )
    child = stage.consumer(point=point, passes=passes)
    if point in AT_THE_END:
        tries = stage.tries()
        wait_for(lambda: stage.tries() > tries + 5 or child.code is not None, f"work before {point}")
        child.send(signal.SIGTERM)
    code = child.wait(30)
    stage.happened(point, fired=code == -signal.SIGKILL and fired(stage.deaths(), point) > before)
    return publisher


def test_without_a_strategy_the_oracle_sees_the_double_effect(tmp_path: Path, fresh: str) -> None:
    """The same deaths under `none`: the grid would be worth nothing if nobody noticed."""
    draw = random.Random(1)
    place = Place(f"embedded:///{tmp_path}/broker.db", f"sqlite:///{tmp_path}/effects.db", fresh, tmp_path)
    with Nursery(tmp_path) as nursery:
        stage = Stage(place, nursery, Settings(strategies="none"))
        publishers = [
            _die(stage, number, point, draw, twice=0.0)
            for number, point in enumerate(["committed", "before-ack"])
        ]
        assert [child.wait() for child in publishers] == [0, 0]
        stage.drain()
        verdict = stage.verdict()
    assert "double" in {violation["kind"] for violation in verdict.violations}
