"""Tests of replaced worker processes, with real ones: the successor is ready before its predecessor drains."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from unit.engine.test_supervisor import Supervised, is_gone

Supervise = Callable[..., Supervised]


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Supervise]:
    """Start a supervisor of forked workers; SIGUSR1 replaces them all."""
    started: list[Supervised] = []

    def start(
        *acts: str, count: int = 1, grace: float = 5, others: str = "serve", **environment: str
    ) -> Supervised:
        made = Supervised(tmp_path, str(count), str(grace), others, *acts, forked="yes", **environment)
        started.append(made)
        return made

    yield start
    for process in started:
        process.close()


def _moment(mark: Path) -> int:
    return mark.stat().st_mtime_ns


def test_a_worker_drains_after_its_successor_is_ready(supervise: Supervise) -> None:
    """The successor has the free number, and nothing is told of a death."""
    app = supervise("serve")
    [old] = app.wait_for("started-0")
    app.send(signal.SIGUSR1)
    app.wait_for("DONE-0-1-reload")
    [new] = app.pids("started-1")
    assert _moment(app.marks("started-1")[0]) < _moment(app.marks("stopped-0")[0])
    assert is_gone(old)
    assert not is_gone(new)
    assert not app.marks("death")
    app.send(signal.SIGTERM)
    assert app.code() == 0


def test_workers_are_replaced_one_after_the_other(supervise: Supervise) -> None:
    """There is one process more than workers at most: the next successor starts when the last predecessor has ended."""
    app = supervise("serve", count=3)
    for index in range(3):
        app.wait_for(f"started-{index}")
    app.send(signal.SIGUSR1)
    app.wait_for("DONE", 3)
    starts, ends = app.marks("STARTED"), app.marks("DONE")
    assert all(_moment(end) <= _moment(start) for end, start in zip(ends, starts[1:], strict=False))
    assert len(app.marks("started")) == 6
    app.send(signal.SIGTERM)
    assert app.code() == 0


def test_a_worker_is_recycled_again_and_again(supervise: Supervise) -> None:
    """Each successor has limits of its own; the pauses of dying workers do not apply to it."""
    app = supervise("serve", RECYCLE_EVERY="0.5")
    app.wait_for("DONE", 3)
    assert not app.marks("death")
    app.send(signal.SIGTERM)
    assert app.code() == 0


def test_a_successor_that_dies_leaves_its_predecessor_running(supervise: Supervise) -> None:
    """What a successor dies of is told; the worker goes on, and a reload is given up."""
    app = supervise("serve", "die", "serve")
    [old] = app.wait_for("started-0")
    app.send(signal.SIGUSR1)
    app.wait_for("FAILED-0-1-reload")
    assert not is_gone(old)
    assert len(app.wait_for("death-1--9-False")) == 1
    app.send(signal.SIGTERM)
    assert app.code() == 0
    assert app.pids("stopped-0") == [old]


def test_a_successor_with_a_fatal_code_ends_nothing(supervise: Supervise) -> None:
    """A configuration that cannot run changes nothing, and the next one is tried."""
    app = supervise("serve", "fatal", "serve")
    app.wait_for("started-0")
    app.send(signal.SIGUSR1)
    app.wait_for("FAILED-0-1-reload")
    app.send(signal.SIGUSR1)
    app.wait_for("DONE-0-1-reload")
    app.send(signal.SIGTERM)
    assert app.code() == 0


def test_a_successor_that_is_never_ready_is_killed(supervise: Supervise) -> None:
    """It has its time; then the predecessor goes on alone, and no message is at fault."""
    app = supervise("serve", "unready", READY_WITHIN="1")
    [old] = app.wait_for("started-0")
    app.send(signal.SIGUSR1)
    app.wait_for("FAILED-0-1-reload")
    assert len(app.wait_for("death-1--9-True")) == 1
    assert not is_gone(old)
    app.send(signal.SIGTERM)
    assert app.code() == 0


def test_a_worker_that_dies_while_its_successor_starts_is_replaced_by_it(supervise: Supervise) -> None:
    """Its death is told, and no third process is started."""
    app = supervise("serve", "unready", READY_WITHIN="60")
    [old] = app.wait_for("started-0")
    app.send(signal.SIGUSR1)
    [new] = app.wait_for("started-1")
    os.kill(old, signal.SIGKILL)
    app.wait_for("TOOK_OVER-0-1-reload")
    assert app.wait_for("death-0--9-False") == [old]
    app.send(signal.SIGTERM)
    assert app.code() == 0
    assert app.pids("stopped-1") == [new]
    assert len(app.marks("started")) == 2


def test_a_promoted_successor_that_dies_is_started_again(supervise: Supervise) -> None:
    """It has taken the place of a worker that died, so something has to run there; what it was started with is given up."""
    app = supervise("serve", "unready", "serve")
    [old] = app.wait_for("started-0")
    app.send(signal.SIGUSR1)
    [new] = app.wait_for("started-1")
    os.kill(old, signal.SIGKILL)
    app.wait_for("TOOK_OVER-0-1-reload")
    os.kill(new, signal.SIGKILL)
    app.wait_for("started-1", 2)
    app.send(signal.SIGTERM)
    assert app.code() == 0


def test_a_worker_that_is_dead_when_a_reload_begins_does_not_stay_as_it_was(supervise: Supervise) -> None:
    """While it waits for its start, no process is there to be replaced; it starts as it was, since the reload may fail yet."""
    app = supervise("serve", "late", "serve", count=2)
    app.wait_for("started-0")
    [dying] = app.wait_for("started-1")
    os.kill(dying, signal.SIGKILL)
    app.wait_for("death-1")
    app.send(signal.SIGUSR1)
    app.wait_for("started-2")
    [again] = [pid for pid in app.wait_for("started-1", 2) if pid != dying]
    assert not app.marks("replaced")
    (app.folder / "ready").touch()
    app.wait_for("replaced-True")
    assert is_gone(again)
    app.send(signal.SIGTERM)
    assert app.code() == 0


def test_the_end_of_a_reload_that_failed_is_told(supervise: Supervise) -> None:
    """Its asker must not wait for ever, and may ask again."""
    app = supervise("serve", "die", "serve")
    app.wait_for("started-0")
    app.send(signal.SIGUSR1)
    app.wait_for("replaced-False")
    app.send(signal.SIGUSR1)
    app.wait_for("replaced-True")
    app.send(signal.SIGTERM)
    assert app.code() == 0


def test_sigterm_during_a_replacement_drains_all(supervise: Supervise) -> None:
    """A successor that is not ready and its predecessor end in order, and the app ends well."""
    app = supervise("serve", "unready")
    app.wait_for("started-0")
    app.send(signal.SIGUSR1)
    app.wait_for("started-1")
    app.send(signal.SIGTERM)
    assert app.code() == 0
    assert len(app.marks("stopped")) == 2


def test_a_predecessor_that_does_not_drain_is_killed_at_the_end_of_the_grace(supervise: Supervise) -> None:
    """No message is at fault, and the next replacement can begin."""
    app = supervise("deaf", "serve", grace=3)
    [old] = app.wait_for("started-0")
    app.send(signal.SIGUSR1)
    app.wait_for("DONE-0-1-reload")
    assert app.wait_for("death-0--9-True") == [old]
    app.send(signal.SIGUSR1)
    app.wait_for("DONE-1-0-reload")
    app.send(signal.SIGTERM)
    assert app.code() == 0


def test_all_end_when_the_supervisor_is_killed_during_a_replacement(supervise: Supervise) -> None:
    """Predecessor and successor drain: nothing would end one of the two."""
    app = supervise("serve", "unready")
    app.wait_for("started-0")
    app.send(signal.SIGUSR1)
    app.wait_for("started-1")
    app.send(signal.SIGKILL)
    app.wait_for("stopped", 2)


def test_a_second_reload_gives_up_the_successor_of_the_first(supervise: Supervise) -> None:
    """The newest order counts: the successor that was not ready ends, and another one takes over."""
    app = supervise("serve", "unready", "serve")
    app.wait_for("started-0")
    app.send(signal.SIGUSR1)
    [given_up] = app.wait_for("started-1")
    app.send(signal.SIGUSR1)
    app.wait_for("DONE-0-1-reload")
    assert app.pids("stopped-1") == [given_up]
    app.send(signal.SIGTERM)
    assert app.code() == 0
