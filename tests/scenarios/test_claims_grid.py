"""A process dies at each step of claiming and ending many effects at once: each happens once, none is lost.

The effect is a line appended to a plain file, which nothing rolls back and no constraint guards.
"""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest

from oncemq.config import load
from oncemq.contracts.adapter import Confirmed
from oncemq.message.envelope import OutgoingMessage
from support.apps.program import eventually
from support.apps.warm import WarmProgram
from support.brokers.places import EMBEDDED, POSTGRESQL, Place, make_place

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

POINTS = ("claims-sent", "claimed", "handled", "before-end", "ends-sent", "ended")

_APP = """
app: {name}
brokers: {{main: {{url: "${{BROKER}}"}}}}
database: {{url: "${{DATABASE}}"}}
grace: 10s
topics:
  {name}: {{key: body.key, identity: body.id}}
consumers:
  judge:
    topic: {name}
    handler: "handlers:{handler}"
    effects: external
    workers: 8
    strategies: [two_phase: {{verify: "handlers:happened", lease: 1s}}]
    retry: {{attempts: 6, backoff: {{first: 100ms, factor: 1}}}}
"""
_HANDLERS = '''"""One line in a file for each event; the process dies once at each point, when some events have been handled before."""

import asyncio
import os
import signal
from pathlib import Path

from oncemq import Done, Envelope, NotDone
from oncemq.ledger.records.claims import Claims
from oncemq_strategies.claims.ledger_claims import ClaimBook

HERE = Path(__file__).parent
EFFECTS, DEATHS = HERE / "effects.log", HERE / "deaths"
POINTS = {points!r}


def reached(point):
    """Die here once, when all points before have had their death, and ten effects more have happened."""
    number = POINTS.index(point)
    deaths = len(list(DEATHS.iterdir()))
    if deaths != number or len(EFFECTS.read_text().split()) < 10 * (number + 1):
        return
    try:
        (DEATHS / point).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def dying(kind, name, before, after):
    plain = getattr(kind, name)

    def wrapped(*given, **more):
        if before:
            reached(before)
        found = plain(*given, **more)
        reached(after)
        return found

    setattr(kind, name, wrapped)


dying(Claims, "take", None, "claims-sent")
dying(ClaimBook, "take_all", None, "claimed")
dying(Claims, "finish", "before-end", "ends-sent")
dying(ClaimBook, "finish_all", None, "ended")


def apply(event: dict, envelope: Envelope) -> dict:
    with EFFECTS.open("a") as file:
        file.write(f"{{event['id']}}\\n")
    reached("handled")
    return {{"id": event["id"]}}


async def apply_async(event: dict, envelope: Envelope) -> dict:
    await asyncio.sleep(0.001)
    return apply(event, envelope)


def happened(envelope: Envelope) -> Done | NotDone:
    return Done() if envelope.identity in EFFECTS.read_text().split() else NotDone()
'''

EVENTS = [{"id": f"e{number}", "key": f"k{number % 60}"} for number in range(150)]


@pytest.fixture(
    params=[("apply", EMBEDDED), pytest.param(("apply_async", POSTGRESQL), marks=pytest.mark.server)]
)
def handler_and_kind(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Each kind of handler, each on another pair of broker and database."""
    chosen: tuple[str, str] = request.param
    return chosen


@pytest.fixture
def place(
    handler_and_kind: tuple[str, str], request: pytest.FixtureRequest, tmp_path, fresh: str
) -> Iterator[Place]:
    """Where the app runs."""
    yield from make_place(handler_and_kind[1], request, tmp_path, fresh)


def test_a_death_at_each_step_loses_and_doubles_no_effect(
    handler_and_kind: tuple[str, str], place: Place
) -> None:
    """Six deaths, with many messages claimed, running and ended unrecorded at each: one line each, and no dead letter."""
    (place.folder / "app.yaml").write_text(_APP.format(name=place.name, handler=handler_and_kind[0]))
    (place.folder / "handlers.py").write_text(_HANDLERS.format(points=POINTS))
    (place.folder / "deaths").mkdir()
    (place.folder / "effects.log").touch()
    program = WarmProgram(place.folder, place.environment)
    program.succeed("tables", "create")
    plan = load([place.folder / "app.yaml"], environment=place.environment).plan
    adapter, target = plan.adapters["main"], plan.consumers[0].subscription
    adapter.prepare([target])
    sends = [OutgoingMessage(json.dumps(event).encode()) for event in [*EVENTS, *EVENTS[::3]]]
    assert all(isinstance(each, Confirmed) for each in adapter.publish(target.topic, target.options, sends))

    def lines() -> list[str]:
        return (place.folder / "effects.log").read_text().split()

    with program.started("run", "--processes", "1") as running:
        everything = {event["id"] for event in EVENTS}
        eventually(lambda: everything <= set(lines()), "every effect", 120, running.said)
        assert running.drain() == 0, running.said()
    program.succeed("run", "--until-idle", "2s")
    letters = list(adapter.dead_letters(target, 100))
    adapter.close(grace=timedelta(seconds=5))
    assert sorted(path.name for path in (place.folder / "deaths").iterdir()) == sorted(POINTS)
    assert Counter(lines()) == Counter(everything)
    assert not letters
    assert place.unsettled("judge") == 0
    assert program.succeed("reconcile") == "nothing is in doubt\n"
