"""How soon work goes on after something broke, and that an ordered end repeats nothing."""

import os
from collections.abc import Callable
from threading import Event
from time import monotonic

import pytest

from storm.attack.havoc import Field
from storm.attack.nursery import Child, Nursery
from storm.attack.stage import CONSUMER, Settings, Stage, bodies, report, wait_for
from support.brokers.quorum import wait_until_named
from support.patience import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(400)]

BACK_WITHIN = 10.0
SILENCE_WITHIN = 20.0
GRACE = 10.0
OUTAGE = float(os.environ.get("ONCEMQ_STORM_OUTAGE", "0"))
"""Seconds for which a killed server stays away besides the time that it needs to start."""


def running(stage: Stage) -> Child:
    """Start a consumer and see it work."""
    stage.publish(bodies(20, prefix="before", twice=0.0))
    consumer = stage.consumer()
    wait_for(lambda: stage.applied() >= 20, "the first effects")
    return consumer


def ended(stage: Stage, consumer: Child, name: str, expected: int, **more: object) -> None:
    """Drain, and have the oracle look."""
    wait_for(lambda: stage.applied() >= expected, "every effect", 60)
    assert consumer.drain() == 0, stage.nursery.said()
    stage.drain()
    verdict = stage.verdict()
    report(name, verdict, **more)
    assert verdict.violations == [], f"{stage.nursery.said()}\n{verdict}"


@pytest.mark.parametrize("which", ["rabbitmq", "database"])
def test_effects_come_soon_after_a_server_was_killed_and_started_again(field: Field, which: str) -> None:
    """The first effect follows within ten seconds after the server accepts connections."""
    server = getattr(field, which)
    with Nursery(field.place.folder) as nursery:
        stage = Stage(field.place, nursery, Settings(), field.environment)
        consumer = running(stage)
        publisher = stage.publisher(stage.write(bodies(200, prefix="after", twice=0.0)), rate=40, batch=10)
        wait_for(lambda: stage.applied() > 20, "the stream to flow")
        wait_until_named(field.rabbitmq, field.place.queue(CONSUMER))
        server.kill()
        stage.happened(f"{which} killed", fired=not server.answers())
        Event().wait(OUTAGE)  # the longer it is away, the longer are the pauses between tries
        seconds = _first_effect_after(stage, server.start, 220)
        assert publisher.wait(60) == 0, nursery.said()
        ended(
            stage, consumer, f"recovery after kill -9 of {which}", 220, first_effect_seconds=round(seconds, 2)
        )
    assert seconds <= BACK_WITHIN


def _first_effect_after(stage: Stage, start: Callable[[], None], everything: int) -> float:
    """Start a server; return the seconds from its first answer to the first new effect.

    The app may be faster than the start's own look at the server: then everything may have been applied already.
    """
    start()
    accepted, before = monotonic(), stage.applied()
    wait_for(lambda: stage.applied() > before or before >= everything, "a new effect", 60)
    return monotonic() - accepted


def test_a_half_open_connection_is_noticed(field: Field) -> None:
    """The broker's end vanishes without a word: effects go on within twenty seconds."""
    with Nursery(field.place.folder) as nursery:
        stage = Stage(field.place, nursery, Settings(), field.environment)
        consumer = running(stage)
        stage.happened("half-open", fired=field.to_rabbitmq.strand() > 0)
        lost = monotonic()
        # Publishers have connections of their own, made after the others were lost.
        stage.publish(bodies(20, prefix="after", twice=0.0))
        wait_for(lambda: stage.applied() > 20, "a new effect", 60)
        seconds = monotonic() - lost
        field.to_rabbitmq.cut()
        ended(stage, consumer, "half-open connection", 40, noticed_seconds=round(seconds, 1))
    assert seconds <= SILENCE_WITHIN


def test_a_drain_ends_in_time_and_repeats_nothing(field: Field) -> None:
    """After SIGTERM under load the process ends within its grace; nothing that was committed comes again."""
    with Nursery(field.place.folder) as nursery:
        stage = Stage(
            field.place, nursery, Settings(pause=0.002 * PATIENCE, grace=f"{GRACE:.0f}s"), field.environment
        )
        stage.publish(bodies(2000, prefix="m", twice=0.0))
        consumer = stage.consumer()
        wait_for(lambda: stage.applied() > 500, "work under way", pause=0.05)
        asked = monotonic()
        assert consumer.drain() == 0, nursery.said()
        seconds, applied = monotonic() - asked, stage.applied()
        assert applied < 2000
        stage.happened("drained under load")
        stage.drain()
        verdict = stage.verdict()
    report("drain under load", verdict, drain_seconds=round(seconds, 2), applied_before=applied)
    assert verdict.violations == [], f"{nursery.said()}\n{verdict}"
    assert verdict.counts["history"] == {}
    assert verdict.counts["handlers begun"] == 2000
    assert seconds <= GRACE
