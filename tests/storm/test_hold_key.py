"""`on_retry: hold_key` while the process dies again and again: what failed is tried again before what came after it.

The order is that of arrival: RabbitMQ delivers again what a dead process had not acknowledged in an order of its own,
the embedded broker in that of publishing.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storm.attack.assassin import Assassin
from storm.attack.nursery import Nursery
from storm.attack.stage import Settings, Stage, report, wait_for
from support.brokers.places import EMBEDDED, KAFKA_POSTGRESQL, POSTGRESQL, Place, make_place

LONG = "ONCEMQ_STORM_MESSAGES" in os.environ
MESSAGES = 50_000 if LONG else 120
KEYS = 200 if LONG else 10
DEATHS = 60 if LONG else 1
EVERY = 2.0 if LONG else 1.0
"""Seconds between two looks at the consumer, which dies if it has begun to work; what a dead process had taken from the ledger is free after five."""
PAUSE = 0.005 if LONG else 0.04
"""Of each handler: the few messages of the short form last until the second death."""
SECONDS = 2400 if LONG else 180
pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(SECONDS)]


@pytest.fixture(params=[EMBEDDED, POSTGRESQL, KAFKA_POSTGRESQL])
def place(request: pytest.FixtureRequest, tmp_path: Path, fresh: str) -> Iterator[Place]:
    """Broker and database."""
    yield from make_place(request.param, request, tmp_path, fresh)


def numbered() -> list[dict[str, Any]]:
    """Return every key's messages from 1 on; the third of each five asks for a retry at first."""
    return [
        {
            "id": f"{key}-{step}",
            "key": f"k{key}",
            "step": step,
            "kind": "flaky" if (step + key) % 5 == 3 else "plain",
        }
        for step in range(1, MESSAGES // KEYS + 1)
        for key in range(KEYS)
    ]


def test_a_held_key_keeps_its_order_over_deaths(place: Place, request: pytest.FixtureRequest) -> None:
    """One consumer, killed again and again, a fifth of all messages fail at first: 0 order errors, lost, double, parked."""
    messages = numbered()
    with Nursery(place.folder) as nursery:
        stage = Stage(
            place, nursery, Settings(attempts=50, most="100ms", more="on_retry: hold_key", pause=PAUSE)
        )
        stage.publish(messages)
        with Assassin(stage, count=1, every=EVERY, at_work_only=True).at_work() as assassin:
            wait_for(lambda: stage.applied() > 0, "the first effects", pause=0.01)
            deaths = stage.times("consumer killed")
            wait_for(lambda: stage.times("consumer killed") > deaths + DEATHS, "deaths", SECONDS, pause=0.05)
            assert stage.applied() < len(messages), "all was done before the next death"
        assert set(assassin.drain()) == {0}, nursery.said()
        stage.drain(idle="7s", timeout=SECONDS)
        in_order = place.broker.startswith("embedded")
        verdict = stage.verdict(copies=0, reruns=1000, held=True, rising=in_order, ordered=False)
    report(f"hold_key {request.node.callspec.params['place']}", verdict, exits=dict(assassin.deaths))
    assert verdict.violations == [], f"{nursery.said()}\n{verdict}"
    assert verdict.counts["applied"] == verdict.counts["effects"] == len(messages)
