"""`on_dead: hold_key` over deaths: of workers when messages are given up, of a replay, and of workers when they are replayed."""

import json
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncemq.contracts.adapter import CONFIRMED
from oncemq.message.envelope import OutgoingMessage
from support.apps.judged_app import CONSUMER, JudgedApp, fine
from support.apps.program import Started, eventually
from support.brokers.places import EMBEDDED, POSTGRESQL, Place, make_place

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

KEYS, STEPS, BAD = 25, 8, 3
"""The third message of each key is given up."""
KILLS = 3
_REJECTS = f"""
_applied = apply


def apply(event: Event, envelope: Envelope, session: Session) -> None:
    if event.id.endswith("-{BAD}") and not TRIED.with_name("repaired").exists():
        raise Reject("not repaired yet")
    _applied(event, envelope, session)
"""


@pytest.fixture(params=[EMBEDDED, pytest.param(POSTGRESQL, marks=pytest.mark.server)])
def place(request: pytest.FixtureRequest, tmp_path: Path, fresh: str) -> Iterator[Place]:
    """Broker and database."""
    yield from make_place(request.param, request, tmp_path, fresh)


@pytest.fixture
def app(place: Place) -> JudgedApp:
    """An app whose dead letters hold their keys."""
    app = JudgedApp(place)
    settings, handlers = place.folder / "app.yaml", place.folder / "handlers.py"
    settings.write_text(settings.read_text().replace("    retry:", "    on_dead: hold_key\n    retry:"))
    text = handlers.read_text().replace("from oncemq import Envelope", "from oncemq import Envelope, Reject")
    body, main, end = text.partition('\n\nif __name__ == "__main__":')
    handlers.write_text(body + "\n" + _REJECTS + main + end)
    return app


def test_deaths_lose_nothing_and_let_nothing_pass(app: JudgedApp, place: Place) -> None:
    """Workers die while keys are held and while they are let go, and so does a replay: each effect once, in the order of its key."""
    ids = [f"{key}-{step}" for step in range(1, STEPS + 1) for key in range(KEYS)]
    messages = [
        OutgoingMessage(
            json.dumps({"id": number, "key": f"k{number.partition('-')[0]}"}).encode(), message_id=number
        )
        for number in ids
    ]
    assert set(app.send(messages)) == {CONFIRMED}
    app.confirmed.update(ids)
    before = KEYS * (BAD - 1)
    with app.program.started("run", "--processes", "1") as running:
        _kill_workers(app, running)
        eventually(
            lambda: len(_held(app)) == KEYS, "a dead letter of each key", timeout=90, said=running.said
        )
        assert running.drain() == 0, running.said()
    in_order = place.broker.startswith("embedded")
    if in_order:  # RabbitMQ gives back what a dead worker held in an order of its own.
        assert len(app.effects()) == before
    assert app.dead_letters() == []
    (place.folder / "repaired").touch()
    with app.program.started("dead-letters", "replay", CONSUMER, "--all") as replay:
        eventually(
            lambda: len(_held(app)) < KEYS or not replay.running, "the first replayed", said=replay.said
        )
        if replay.running:
            os.kill(replay.pid, signal.SIGKILL)
    app.program.succeed("dead-letters", "replay", CONSUMER, "--all")
    assert _held(app) == []
    with app.program.started("run", "--processes", "1") as running:
        _kill_workers(app, running)
        eventually(app.all_applied, "every effect", timeout=90, said=running.said)
        assert running.drain() == 0, running.said()
    assert app.judge() == fine()
    if in_order:
        assert _order(app) == {str(key): list(range(1, STEPS + 1)) for key in range(KEYS)}


def _kill_workers(app: JudgedApp, running: Started) -> None:
    """SIGKILL the worker whose handler began last, again and again, each time after it has done something."""
    killed = {process for process, _ in app.tried()}
    for _ in range(KILLS):
        eventually(
            lambda: (tried := app.tried()) and tried[-1][0] not in killed,
            "a worker that works",
            said=running.said,
        )
        process = app.tried()[-1][0]
        os.kill(process, signal.SIGKILL)
        killed.add(process)


def _held(app: JudgedApp) -> list[str]:
    listed = app.program.succeed("dead-letters", "list", CONSUMER, "--json").splitlines()
    return [letter["id"] for letter in map(json.loads, listed) if letter["id"].startswith("held-")]


def _order(app: JudgedApp) -> dict[str, list[int]]:
    found = defaultdict[str, list[int]](list)
    for identity, _, _ in app.effects():
        key, _, step = identity.partition("-")
        found[key].append(int(step))
    return found
