"""Deaths at named points of a message's way, one after the other, each in a process that has work."""

import os
import random
import signal
from collections.abc import Sequence

from storm.attack.killer import AT_THE_END, PROGRESS, fired
from storm.attack.nursery import Child, Nursery
from storm.attack.stage import Settings, Stage, Verdict, bodies, report, wait_for
from support.brokers.places import Place

KINDS = {"flaky": 0.1, "reject": 0.1, "transient": 0.05, "raises": 0.01, "sets": 0.05, "mixes": 0.1}
_MESSAGES = 40 if "ONCEMQ_STORM_KILLS" in os.environ else 20
"""For each death."""
_TWICE = 0.3


def attack(
    place: Place,
    points: Sequence[str],
    kills: int,
    name: str,
    *,
    idle: str = "2s",
    repeated: int = 1,
    pause: float = 0.0,
    patience: float = 30,
) -> Verdict:
    """Have processes die at each point so often, shuffled; what each leaves is the next one's.

    Args:
        place: broker and database.
        points: where to die.
        kills: at each point.
        name: for the report.
        idle: after how much silence the last process ends.
        repeated: dead letters that one death may repeat.
        pause: seconds that every handler takes.
        patience: seconds until a process has died.
    """
    draw = random.Random(kills)
    deaths = [point for point in points for _ in range(kills)]
    draw.shuffle(deaths)
    with Nursery(place.folder) as nursery:
        stage = Stage(place, nursery, Settings(attempts=20, pause=pause))
        for number, point in enumerate(deaths):
            die(stage, number, point, draw, patience=patience)
        # Those who died have left most of their work.
        stage.drain(idle=idle, timeout=120 + pause * len(deaths) * round(_MESSAGES * (1 + _TWICE)))
        verdict = stage.verdict(copies=len(deaths) * repeated)
    report(name, verdict, kills=len(stage.deaths()))
    assert verdict.violations == [], f"{nursery.said()}\n{verdict}"
    assert verdict.counts["suspects left"] <= len(deaths)
    return verdict


def die(
    stage: Stage, number: int, point: str, draw: random.Random, *, twice: float = _TWICE, patience: float = 30
) -> Child:
    """Give a process work, and have it die at `point`; what it leaves is the next one's. Returns who publishes."""
    before = fired(stage.deaths(), point)
    rare = point in AT_THE_END or point == PROGRESS or "letter" in point or "retry" in point
    passes = 1 if rare else draw.randint(1, 3)
    publisher = stage.publisher(
        stage.write(bodies(_MESSAGES, prefix=f"m{number}-", kinds=KINDS, twice=twice, seed=number))
    )
    child = stage.consumer(point=point, passes=passes)
    if point in AT_THE_END:
        tries = stage.tries()
        wait_for(lambda: stage.tries() > tries + 5 or child.code is not None, f"work before {point}")
        child.send(signal.SIGTERM)
    code = child.wait(patience)
    stage.happened(point, fired=code == -signal.SIGKILL and fired(stage.deaths(), point) > before)
    return publisher
