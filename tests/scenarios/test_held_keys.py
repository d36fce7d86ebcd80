"""`on_dead: hold_key` over deaths: of workers when messages are given up, of a replay, and of workers when they are replayed."""

import json
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, select

from oncemq.contracts.adapter import CONFIRMED
from oncemq.ledger.messages import parking
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


def is_bad(event: Event) -> bool:
    return event.id.endswith("-{BAD}") and not TRIED.with_name("repaired").exists()


def apply(event: Event, envelope: Envelope, session: Session) -> None:
    if is_bad(event):
        raise Reject("not repaired yet")
    _applied(event, envelope, session)


def apply_all(events: Batch[Event], session: Session) -> None:
    for event, envelope in zip(events, events.envelopes, strict=True):
        _applied(event, envelope, session)
    if bad := {{place: Reject("not repaired yet") for place, event in enumerate(events) if is_bad(event)}}:
        raise BadItems(bad)
"""
HANDLERS = {EMBEDDED: "apply_all", POSTGRESQL: "apply"}
"""A batch that writes for all and names the bad ones afterwards, and a handler of one message."""


@pytest.fixture(params=[EMBEDDED, pytest.param(POSTGRESQL, marks=pytest.mark.server)])
def place(request: pytest.FixtureRequest, tmp_path: Path, fresh: str) -> Iterator[Place]:
    """Broker and database."""
    yield from make_place(request.param, request, tmp_path, fresh)


@pytest.fixture
def app(place: Place, request: pytest.FixtureRequest) -> JudgedApp:
    """An app whose dead letters hold their keys."""
    handler = HANDLERS[request.node.callspec.params["place"]]
    app = JudgedApp(place)
    settings, handlers = place.folder / "app.yaml", place.folder / "handlers.py"
    declared = settings.read_text().replace("handlers:apply", f"handlers:{handler}")
    settings.write_text(declared.replace("    retry:", "    on_dead: hold_key\n    retry:"))
    imports = "from oncemq import BadItems, Batch, Envelope, Reject"
    text = handlers.read_text().replace("from oncemq import Envelope", imports)
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
    if not place.database.startswith(
        "sqlite"
    ):  # There a test cannot stop a replay midway: one writer locks all.
        _kill_a_replay(app)
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


def _kill_a_replay(app: JudgedApp) -> None:
    """SIGKILL a replay that has done half of its work, and waits for a row that is locked here."""
    dead = (
        select(parking.TABLE.c.id).where(parking.TABLE.c.due_at == parking.DEAD).order_by(parking.TABLE.c.id)
    )
    engine = create_engine(app.place.database)
    with engine.connect() as blocker:
        middle = blocker.scalars(dead).all()[KEYS // 2]
        blocker.execute(dead.where(parking.TABLE.c.id == middle).with_for_update())
        with (
            app.program.started("dead-letters", "replay", CONSUMER, "--all") as replay,
            engine.connect() as look,
        ):
            look.execution_options(isolation_level="AUTOCOMMIT")
            eventually(
                lambda: look.execute(dead.limit(1)).scalar_one() == middle,
                "half of the replay",
                said=replay.said,
            )
            assert replay.running
            os.kill(replay.pid, signal.SIGKILL)
            replay.wait()
        blocker.rollback()
    engine.dispose()
    assert len(_held(app)) == KEYS - KEYS // 2


def _held(app: JudgedApp) -> list[str]:
    listed = app.program.succeed("dead-letters", "list", CONSUMER, "--json").splitlines()
    return [letter["id"] for letter in map(json.loads, listed) if letter["id"].startswith("held-")]


def _order(app: JudgedApp) -> dict[str, list[int]]:
    found = defaultdict[str, list[int]](list)
    for identity, _, _ in app.effects():
        key, _, step = identity.partition("-")
        found[key].append(int(step))
    return found
