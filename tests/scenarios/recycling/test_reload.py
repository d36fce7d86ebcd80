"""A running app is reloaded by SIGHUP under traffic: each message takes effect once and in order, and a bad file changes nothing."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from scenarios.recycling.test_recycling import Traffic, place_of_successors
from support.apps.program import Started, eventually
from support.brokers.places import EMBEDDED, KAFKA_POSTGRESQL, POSTGRESQL, Place

RELOADS = int(os.environ.get("ONCEMQ_STORM_RELOADS", "2"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240 + 20 * RELOADS)]


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, fresh: str) -> Iterator[Place]:
    """Where the app runs; without servers unless the test names some."""
    yield from place_of_successors(getattr(request, "param", EMBEDDED), request, tmp_path, fresh)


@contextmanager
def _running(place: Place) -> Iterator[tuple[Traffic, Started]]:
    with closing(Traffic(place, "")) as traffic, traffic.program.started("run") as running:
        traffic.publish_while(lambda: traffic.count() > 0, running.said)
        yield traffic, running


def _ask(running: Started) -> None:
    os.kill(running.pid, signal.SIGHUP)


def _says(running: Started, text: str, times: int = 1) -> None:
    eventually(lambda: running.said().count(text) >= times, f"{times} x {text}", 60, running.said)


@pytest.mark.parametrize(
    "place",
    [EMBEDDED, *(pytest.param(kind, marks=pytest.mark.server) for kind in (POSTGRESQL, KAFKA_POSTGRESQL))],
    indirect=True,
)
def test_nothing_is_lost_doubled_or_disordered_while_the_app_is_reloaded(place: Place) -> None:
    """One reload follows the other, each with another text."""
    with _running(place) as (traffic, running):
        asked = 0

        def reloaded() -> bool:
            nonlocal asked
            done = running.said().count("reload done")
            if done == asked < RELOADS:
                asked += 1
                traffic.configure(f"defaults: {{in_flight: {100 + asked}}}")
                _ask(running)
            return done >= RELOADS

        traffic.publish_while(reloaded, running.said)
        assert running.said().count("worker process was replaced") == 2 * RELOADS
        traffic.finish(running)


def _broken_yaml(traffic: Traffic) -> None:
    traffic.configure("defaults: {in_flight")


def _unknown_strategy(traffic: Traffic) -> None:
    traffic.configure("")
    _edit(traffic, "strategies: [sequence]", "strategies: [nonsense]")


def _handler_fails(traffic: Traffic) -> None:
    (traffic.place.folder / "handlers.py").write_text("raise RuntimeError('not today')\n")


def _broker_away(traffic: Traffic) -> None:
    traffic.configure("")
    _edit(traffic, "${BROKER}", "amqp://localhost:1/")


def _other_strategy(traffic: Traffic) -> None:
    traffic.configure("")
    _edit(traffic, "strategies: [sequence]", "strategies: [unique_key]")


def _edit(traffic: Traffic, old: str, new: str) -> None:
    file = traffic.place.folder / "app.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


_BAD: dict[str, Callable[[Traffic], None]] = {
    "app.yaml:": _broken_yaml,
    "nonsense": _unknown_strategy,
    "not today": _handler_fails,
    "localhost:1": _broker_away,
    "consumers.judge: strategies cannot change while old and new processes run side by side": _other_strategy,
}


def test_a_bad_configuration_changes_nothing_and_says_why(place: Place) -> None:
    """The same processes go on; one that dies comes back with the text that was checked, although the file is bad."""
    with _running(place) as (traffic, running):
        handlers = (place.folder / "handlers.py").read_text()
        for number, (why, spoil) in enumerate(_BAD.items(), 1):
            traffic.configure("")
            (place.folder / "handlers.py").write_text(handlers)
            spoil(traffic)
            _ask(running)
            _says(running, "reload refused; nothing has changed", number)
            assert why in running.said().rpartition("reload refused")[2]
        assert "a successor of a worker process starts" not in running.said()
        _broken_yaml(traffic)
        (place.folder / "handlers.py").write_text(handlers)
        os.kill(_worker(traffic), signal.SIGKILL)
        _says(running, "worker process ended")
        traffic.configure("")
        before = traffic.count()
        traffic.publish_while(lambda: traffic.count() > before + 200, running.said)
        # Two at once are one after the other.
        _ask(running)
        _says(running, "reload begins")
        _ask(running)
        _says(running, "reload done", 2)
        eventually(lambda: traffic.count() >= traffic.published, "every effect", 60, running.said)
        assert running.drain() == 0, running.said()
        assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in traffic.orders().values())


def _worker(traffic: Traffic) -> int:
    return traffic.processes()[-1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_reload_that_the_end_of_the_supervisor_cuts_short(place: Place, number: signal.Signals) -> None:
    """All processes drain, and the next start goes on without loss or repetition."""
    with _running(place) as (traffic, running):
        _ask(running)
        _says(running, "a successor of a worker process starts")
        os.kill(running.pid, number)
        assert running.wait() == (0 if number == signal.SIGTERM else -signal.SIGKILL)
        before = traffic.count()
        with traffic.program.started("run") as again:
            traffic.publish_while(lambda: traffic.count() > before + 200, again.said)
            traffic.finish(again)
