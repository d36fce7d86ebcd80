"""Everything at once: consumers die every second, servers die, connections break, and each message takes effect once."""

import os
import random
from collections.abc import Mapping
from datetime import timedelta
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from storm.attack.assassin import Assassin
from storm.attack.havoc import FAULTS, Field
from storm.attack.nursery import Nursery
from storm.attack.orders import as_networks_do, events, order_file
from storm.attack.stage import CONSUMER, Settings, Stage, report, wait_for
from support.brokers.places import Place
from support.brokers.quorum import declare_delays, wait_until_named

MESSAGES = int(os.environ.get("ONCEMQ_STORM_MESSAGES", "3000"))
SLICE = min(20_000, MESSAGES // len(FAULTS) + 1)
SECONDS = 240 + MESSAGES // 200
KINDS = {"transient": 0.05, "raises": 0.01, "sets": 0.02, "mixes": 0.1}
"""Handlers that fail once or always, and those that make settings or write by ORM and Core."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS)]


@pytest.mark.server
def test_nothing_is_lost_or_doubled_in_a_storm(field: Field) -> None:
    """On RabbitMQ and PostgreSQL; 30 % of the messages are sent twice under other message ids, 6 % fail."""
    draw = random.Random(7)
    messages = [_drawn(event, draw, KINDS) for event in islice(events(order_file()), MESSAGES)]
    source, good = iter(messages), sum(message["kind"] != "raises" for message in messages)
    with Nursery(field.place.folder) as nursery:
        stage = Stage(field.place, nursery, Settings(attempts=12, most="1s"), field.environment)
        declare_delays(field.rabbitmq, field.place.queue(CONSUMER), timedelta(seconds=1))
        with Assassin(stage, count=2, every=1.0).at_work() as assassin:
            for name in cycle(FAULTS):
                part = list(islice(source, SLICE))
                if not part:
                    break
                _slice(stage, field, name, as_networks_do(part, draw))
        wait_for(lambda: stage.applied() >= good, "every message to be applied", SECONDS, pause=0.5)
        assert assassin.drain() == [0, 0], nursery.said()
        stage.drain()
        # A death, or a connection that ends, between a dead letter and its acknowledgement leaves a second one.
        verdict = stage.verdict(copies=sum(stage.fired.values()), reruns=1000)
    assert stage.times("consumer killed") >= len(FAULTS)
    report("storm rabbitmq+postgresql", verdict, exits=dict(assassin.deaths))
    assert verdict.violations == [], f"{nursery.said()}\n{verdict}"
    assert verdict.counts["applied"] == verdict.counts["effects"] == good


def _drawn(message: dict[str, Any], draw: random.Random, kinds: Mapping[str, float]) -> dict[str, Any]:
    """Return a message of which a share fails, or has its effect in another way."""
    names, shares = ["plain", *kinds], [1 - sum(kinds.values()), *kinds.values()]
    return {**message, "kind": draw.choices(names, shares)[0]}


def _slice(stage: Stage, field: Field, name: str, messages: list[dict[str, object]]) -> None:
    """Publish a part from two processes while one fault happens."""
    half = len(messages) // 2
    publishers = [stage.publisher(stage.write(part)) for part in (messages[:half], messages[half:])]
    wait_until_named(field.rabbitmq, field.place.queue(CONSUMER))
    stage.happened(name, fired=FAULTS[name](field))
    assert [child.wait(180) for child in publishers] == [0, 0], stage.nursery.said()


def test_nothing_is_lost_or_doubled_on_one_machine(tmp_path: Path, fresh: str) -> None:
    """On the embedded broker and SQLite, with the order of states promised across processes."""
    count, draw = max(1000, MESSAGES // 10), random.Random(7)
    place = Place(f"embedded:///{tmp_path}/broker.db", f"sqlite:///{tmp_path}/effects.db", fresh, tmp_path)
    kinds = {kind: share for kind, share in KINDS.items() if kind != "raises"}
    messages = [_drawn(event, draw, kinds) for event in islice(events(order_file()), count)]
    states = (
        "unique_key, {state_machine: {to: body.state, states: [purchased, approved, shipped, delivered]}}"
    )
    with Nursery(tmp_path) as nursery:
        stage = Stage(place, nursery, Settings(attempts=50, strategies=states))
        with Assassin(stage, count=2, every=1.0).at_work() as assassin:
            stage.publish(as_networks_do(messages, draw), rate=1500)
            wait_for(lambda: stage.times("consumer killed") >= 5, "five deaths")
        assert set(assassin.drain()) == {0}, nursery.said()
        stage.drain()
        # What failed may be overtaken by the other process before its key is held, and so may what ran when its process was
        # killed; it says so in a dead letter.
        fates = {kind: ["applied", "stale", "dead-lettered"] for kind in ("plain", *kinds)}
        verdict = stage.verdict(fates=fates, reruns=1000, rising=True, copies=0)
        assert verdict.counts["reasons"].keys() <= {"overtaken"}
    report("storm embedded+sqlite", verdict, exits=dict(assassin.deaths))
    assert verdict.violations == [], f"{nursery.said()}\n{verdict}"
