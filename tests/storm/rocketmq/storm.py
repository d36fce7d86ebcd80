"""A storm over RocketMQ, the same for each of its drivers, and over Kafka: members die, freeze, join and leave, servers die."""

import os
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from typing import Any, Protocol, TypeVar

from storm.attack.assassin import Assassin, freeze, kill, leave
from storm.attack.nursery import Nursery
from storm.attack.orders import as_they_happened, events, order_file
from storm.attack.stage import Settings, Stage, Verdict, report, wait_for
from storm.rocketmq.havoc import BROKER_DIES, SAVED_EVERY
from support.brokers.places import Place

LONG = "ONCEMQ_STORM_MESSAGES" in os.environ
KINDS = {"flaky": 0.02, "reject": 0.01}
HARMS = ("consumer killed", "consumer left", "consumer frozen")
REPEATED = 100
"""Dead letters that may come a second time because members died: a broker is told every half second how far a queue is."""


class Field(Protocol):
    """Servers that may be broken."""

    @property
    def place(self) -> Place:
        """How every process reaches them."""


Servers = TypeVar("Servers", bound=Field)
Fault = Callable[[Servers, Assassin], bool]
"""Given the servers, and who keeps the consumers."""


def messages_of(most: int, short: int) -> int:
    """Return how many messages a storm has."""
    return min(most, int(os.environ["ONCEMQ_STORM_MESSAGES"])) if LONG else short


def storm(
    field: Servers,
    faults: Mapping[str, Fault[Servers]],
    messages: int,
    *,
    members: int = 3,
    every: float = 3.0,
    rate: float = 100.0,
    idle: str = "6s",
    repeated: Callable[[Stage], int] | None = None,
    **promise: Any,
) -> Verdict:
    """Have orders told in parts, one fault in each; return what the oracle says when all has drained.

    Args:
        field: the servers.
        faults: by name; in turn, at least one each.
        messages: how many different ones; 30 % are sent twice.
        members: how many run at once.
        every: seconds between two harms to members.
        rate: messages a second of each of two publishers.
        idle: how long nothing may have come before all has drained.
        repeated: dead letters that may come a second time; None = as many as RocketMQ repeats.
        promise: what else the driver promises.
    """
    told = _told(messages)
    parts = max(len(faults), messages // 20_000)
    slices = [told[messages * at // parts : messages * (at + 1) // parts] for at in range(parts)]
    dead = sum(message["kind"] == "reject" for message in told)
    with Nursery(field.place.folder) as nursery:
        stage = Stage(field.place, nursery, Settings(attempts=50, most="1s"))
        with Assassin(stage, members, every, harms=(kill, leave, freeze)).at_work() as assassin:
            for part, (name, fault) in zip(slices, cycle(faults.items()), strict=False):
                _slice(assassin, field, name, fault, part, rate)
            # A harm that came to nothing, such as to a consumer that had just died, has its turn once more.
            wait_for(lambda: all(map(stage.times, HARMS)), "every kind of harm", 120, 0.5)
        wait_for(lambda: stage.applied() >= messages - dead, "every effect", 120 + messages / 100, 0.5)
        assert set(assassin.drain()) == {0}, nursery.said()
        stage.drain(idle=idle)
        copies = _repeated(stage, faults, rate) if repeated is None else repeated(stage)
        verdict = stage.verdict(copies=copies, reruns=1000, **promise)
    report(f"storm {field.place.broker.partition(':')[0]}", verdict, exits=dict(assassin.deaths))
    assert verdict.violations == [], f"{nursery.said()}\n{verdict}"
    assert verdict.counts["applied"] == verdict.counts["effects"] == messages - dead
    for harm in HARMS:
        assert stage.times(harm), f"no {harm}"
    return verdict


def _repeated(stage: Stage, faults: Mapping[str, Any], rate: float) -> int:
    """Return how many dead letters may come a second time: of what members that died had not told the broker, and what brokers that died had not saved."""
    deaths = sum(stage.times(name) for name, fault in faults.items() if fault in BROKER_DIES)
    return REPEATED + round(deaths * SAVED_EVERY * 2 * rate * KINDS["reject"])


def _told(count: int) -> list[dict[str, Any]]:
    draw = random.Random(7)
    kinds, shares = ["plain", *KINDS], [1 - sum(KINDS.values()), *KINDS.values()]
    told = islice(events(order_file()), count)
    return [{**message, "kind": draw.choices(kinds, shares)[0]} for message in told]


def _slice(
    keeper: Assassin,
    field: Servers,
    name: str,
    fault: Fault[Servers],
    part: Sequence[dict[str, Any]],
    rate: float,
) -> None:
    """Publish a part from two processes, each of them half of the keys in order, while one fault happens."""
    draw, stage = random.Random(len(part)), keeper.stage
    halves = [[message for message in part if sum(message["key"].encode()) % 2 == half] for half in (0, 1)]
    publishers = [
        stage.publisher(stage.write(as_they_happened(half, draw)), rate=rate, batch=20) for half in halves
    ]
    stage.happened(name, fired=fault(field, keeper))
    assert [child.wait(300) for child in publishers] == [0, 0], stage.nursery.said()
