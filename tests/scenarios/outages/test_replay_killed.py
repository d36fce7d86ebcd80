"""A replay of many dead letters that is killed midway: nothing is lost, and nothing takes effect twice."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.apps.judged_app import JudgedApp, fine
from support.apps.program import eventually
from support.brokers.places import POSTGRESQL, Place, make_place

LETTERS = int(os.environ.get("ONCEMQ_REPLAYED", "1500"))
pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(240)]

_REJECTS = """
_applied = apply


def apply(event: Event, envelope: Envelope, session: Session) -> None:
    if not TRIED.with_name("repaired").exists():
        raise Reject("not repaired yet")
    _applied(event, envelope, session)
"""


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, fresh: str) -> Iterator[Place]:
    """A broker that copies what is replayed, and a database."""
    yield from make_place(POSTGRESQL, request, tmp_path, fresh)


def test_a_killed_replay_loses_and_doubles_nothing(place: Place) -> None:
    """What it had sent is applied, what it had not is still a dead letter, and a second replay brings the rest."""
    app = JudgedApp(place)
    handlers = place.folder / "handlers.py"
    text = handlers.read_text().replace("from oncemq import Envelope", "from oncemq import Envelope, Reject")
    body, main, end = text.partition('\n\nif __name__ == "__main__":')
    handlers.write_text(body + "\n" + _REJECTS + main + end)
    app.publish([f"e{number}" for number in range(LETTERS)], twice=0.0)
    app.program.succeed("run", "--until-idle", "1s", timeout=120)
    assert len(app.dead_letters()) == LETTERS
    (place.folder / "repaired").touch()
    with app.program.started("run") as running:
        eventually(lambda: "consumer started" in running.said(), "a start", said=running.said)
        with app.program.started("dead-letters", "replay", "judge", "--all") as replay:
            eventually(app.effects, "the first effect", said=running.said)
            os.kill(replay.pid, signal.SIGKILL)
            assert replay.wait() == -signal.SIGKILL, replay.said()
        assert 0 < len(app.dead_letters()) < LETTERS, "it was not killed midway"
        app.program.succeed("dead-letters", "replay", "judge", "--all", timeout=120)
        eventually(app.all_applied, "every effect", said=running.said)
        assert running.drain() == 0, running.said()
    assert app.judge() == fine()
    assert app.dead_letters() == []
