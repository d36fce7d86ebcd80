"""Order at volume: numbered messages, shuffled and repeated, while consumers die; each key's effects come in order, once."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from storm.attack.assassin import Assassin
from storm.attack.nursery import Nursery
from storm.attack.orders import as_networks_do
from storm.attack.stage import Settings, Stage, report, wait_for
from support.brokers.places import POSTGRESQL, ROCKETMQ_POSTGRESQL, Place, make_place

LONG = "ONCEMQ_STORM_MESSAGES" in os.environ
MESSAGES = 200_000 if LONG else 1600
KEYS = 1000 if LONG else 32
WINDOW = 64
AT_ONCE = 16
"""Keys whose messages are sent interleaved, so that a window of 64 holds about four of each."""
EVERY = 2.0 if LONG else 3.0
"""Seconds between two deaths; in the short form so many that a consumer has begun to work on a busy machine, too."""
RATE = 200
"""Messages a second in the short form: they last for more than two deaths, however fast they are applied."""
CHAIN = "{sequence: {order: body.step}}"
SECONDS = 1800 if LONG else 180
pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(SECONDS)]


@pytest.fixture(params=[POSTGRESQL, ROCKETMQ_POSTGRESQL] if LONG else [POSTGRESQL])
def place(request: pytest.FixtureRequest, tmp_path: Path, fresh: str) -> Iterator[Place]:
    """PostgreSQL, and RabbitMQ or, in the long form, RocketMQ."""
    yield from make_place(request.param, request, tmp_path, fresh)


def numbered() -> list[dict[str, object]]:
    """Return every key's messages from 1 on, a group of keys at a time."""
    each = MESSAGES // KEYS
    groups = [range(first, min(first + AT_ONCE, KEYS)) for first in range(0, KEYS, AT_ONCE)]
    return [
        {"id": f"{key}-{step}", "key": f"k{key}", "step": step}
        for group in groups
        for step in range(1, each + 1)
        for key in group
    ]


def test_the_order_of_every_key_is_kept(place: Place, request: pytest.FixtureRequest) -> None:
    """Shuffled in a window of 64, 10 % twice, a consumer killed every few seconds: 0 order errors, lost, double, parked."""
    messages = numbered()
    with Nursery(place.folder) as nursery:
        stage = Stage(place, nursery, Settings(attempts=50, most="1s", strategies=CHAIN))
        with Assassin(stage, count=2, every=EVERY, at_work_only=True).at_work() as assassin:
            shuffled = as_networks_do(messages, random.Random(11), twice=0.1, window=WINDOW)
            publisher = stage.publisher(stage.write(shuffled), rate=0 if LONG else RATE)
            wait_for(lambda: stage.applied() > 0, "the first effects", pause=0.1)
            deaths = stage.times("consumer killed")
            wait_for(lambda: stage.times("consumer killed") > deaths, "a death amid the work", pause=0.1)
            assert stage.applied() < len(messages), "all was done before the next death"
            assert publisher.wait(SECONDS) == 0, nursery.said()
            if LONG:
                wait_for(lambda: stage.applied() >= len(messages), "every effect", SECONDS, pause=1.0)
        assert set(assassin.drain()) == {0}, nursery.said()
        stage.drain(idle="7s")
        verdict = stage.verdict(copies=0, reruns=1000, rising=True, ordered=False)
    report(f"sequence {request.node.callspec.params['place']}", verdict, exits=dict(assassin.deaths))
    assert verdict.violations == [], f"{nursery.said()}\n{verdict}"
    assert verdict.counts["applied"] == verdict.counts["effects"] == len(messages)
    assert verdict.counts["history"]["parked"] > len(messages) // 50, "the stream was hardly out of order"
