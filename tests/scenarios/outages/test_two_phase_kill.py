"""Processes die before, after and in the middle of effects outside the database: each happens once, none is lost.

What handlers publish is sent for each effect, also where its process died before the handler returned.

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

_APP = """
app: {name}
brokers: {{main: {{url: "${{BROKER}}"}}}}
database: {{url: "${{DATABASE}}"}}
grace: 10s
topics:
  {name}: {{key: body.key, identity: body.id}}
  {name}-told: {{key: body.id}}
consumers:
  judge:
    topic: {name}
    handler: "handlers:{handler}"
    effects: external
    workers: 4
    strategies: [two_phase: {{verify: "handlers:happened", lease: 1s}}]
    retry: {{attempts: 6, backoff: {{first: 100ms, factor: 1}}}}
  hear:
    topic: {name}-told
    handler: "handlers:hear"
    effects: external
    strategies: [none]
"""
_HANDLERS = '''"""One line in a file for each event, and a disaster for some, each once."""

import asyncio
import os
import signal
from pathlib import Path

from oncemq import Done, Envelope, NotDone, Publisher, Retry, Unknown

HERE = Path(__file__).parent
EFFECTS, ASKED, DISASTERS = HERE / "effects.log", HERE / "asked.log", HERE / "disasters"
HEARD = HERE / "heard.log"


def write(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\\n")


def disaster(event: dict, when: str) -> None:
    kind, _, wanted = event.get("disaster", "").partition("-")
    if wanted != when:
        return
    try:
        (DISASTERS / event["id"]).touch(exist_ok=False)
    except FileExistsError:
        return
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise Retry("busy") if kind == "retry" else ConnectionError("hung up")


def apply(event: dict, envelope: Envelope, publisher: Publisher) -> dict:
    disaster(event, "before")
    write(EFFECTS, event["id"])
    disaster(event, "after")
    publisher.publish(f"{envelope.topic}-told", {"id": event["id"]})
    disaster(event, "published")
    return {"id": event["id"]}


async def apply_async(event: dict, envelope: Envelope, publisher: Publisher) -> dict:
    await asyncio.sleep(0.001)
    return apply(event, envelope, publisher)


def hear(told: dict, envelope: Envelope) -> None:
    write(HEARD, f"{told['id']}:{envelope.message_id}")


def happened(envelope: Envelope, publisher: Publisher) -> Done | NotDone | Unknown:
    write(ASKED, envelope.identity)
    if envelope.identity == "lost-track":
        return Unknown("the log was rotated")
    seen = EFFECTS.exists() and envelope.identity in EFFECTS.read_text().split()
    publisher.publish(f"{envelope.topic}-told", {"id": envelope.identity})
    return Done({"id": envelope.identity}) if seen else NotDone()
'''

DISASTERS = ["kill-before", "kill-after", "error-before", "error-after", "retry-before", "kill-published"]
EVENTS = [
    {
        "id": f"e{number}",
        "key": f"k{number % 7}",
        "disaster": DISASTERS[number % 10] if number % 10 < len(DISASTERS) else "",
    }
    for number in range(10)
]
LOST_TRACK = {"id": "lost-track", "key": "lost", "disaster": "error-before"}


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


def lines(place: Place, name: str) -> list[str]:
    """Return the lines of a file that handlers write."""
    path = place.folder / name
    return path.read_text().split() if path.exists() else []


def test_each_effect_happens_once_whatever_dies(handler_and_kind: tuple[str, str], place: Place) -> None:
    """Three kills, two errors and a retry, half of the events twice: one line each, and dead letters for one message alone."""
    (place.folder / "app.yaml").write_text(_APP.format(name=place.name, handler=handler_and_kind[0]))
    (place.folder / "handlers.py").write_text(_HANDLERS)
    (place.folder / "disasters").mkdir()
    program = WarmProgram(place.folder, place.environment)
    program.succeed("tables", "create")
    plan = load([place.folder / "app.yaml"], environment=place.environment).plan
    adapter, target = plan.adapters["main"], plan.consumers[0].subscription
    sends = [*EVENTS, LOST_TRACK, *EVENTS[::2]]
    adapter.prepare([target])
    answers = adapter.publish(
        target.topic, target.options, [OutgoingMessage(json.dumps(event).encode()) for event in sends]
    )
    assert all(isinstance(answer, Confirmed) for answer in answers)
    everything = {event["id"] for event in EVENTS}
    with program.started("run", "--processes", "2") as running:
        eventually(
            lambda: (
                everything <= set(lines(place, "effects.log"))
                and len(list(adapter.dead_letters(target, 100))) >= 1
            ),
            "every effect and a dead letter",
            120,
            running.said,
        )
        assert running.drain() == 0, running.said()
    # What was given back when the first run ended finds its claim done; outbox rows of a killed process are sent when its
    # hold on them has ended.
    program.succeed("run", "--until-idle", "2s")
    letters = list(adapter.dead_letters(target, 100))
    adapter.close(grace=timedelta(seconds=5))
    assert Counter(lines(place, "effects.log")) == Counter(everything)
    # A process that another message kills between the confirmed dead letter and the acknowledgement leaves both.
    assert {
        (json.loads(letter.message.body)["id"], letter.message.headers["oncemq-reason"]) for letter in letters
    } == {("lost-track", "unknown-effect")}
    kills = sum(event["disaster"].startswith("kill") for event in EVENTS)
    assert len(letters) <= 1 + kills
    struck = {event["id"] for event in EVENTS if event["disaster"].startswith(("kill", "error"))}
    assert struck <= set(lines(place, "asked.log")), "a disaster went unnoticed"
    # Its consumer hears a message again when the process dies before it is acknowledged, but each is one message.
    heard = Counter(line.partition(":")[0] for line in set(lines(place, "heard.log")))
    assert heard == Counter(everything), "an effect without its message, or two"
    assert place.unsettled("judge") == 0
    assert "lost-track" in program.succeed("reconcile")
    known = ("reconcile", "judge", "--identity", "lost-track", "--assume", "done")
    assert "done" in program.succeed(*known)
    assert program.succeed("reconcile") == "nothing is in doubt\n"
