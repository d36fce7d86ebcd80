"""Tests of the supervisor with real processes: a program of its own supervises workers that behave as told."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncemq.engine.supervision.child import Child
from oncemq.engine.supervisor import Supervisor
from support.patience import PATIENCE

TESTS = Path(__file__).parents[2]
DEADLINE = 30.0 * PATIENCE


class Supervised:
    """A supervisor in a process of its own, and the marks that its workers leave."""

    def __init__(
        self, folder: Path, *arguments: str, forked: str, frozen_after: float = 60, **environment: str
    ) -> None:
        self.folder = folder
        self.forked = forked
        variables = {
            **os.environ,
            "FORKED": forked,
            "FROZEN_AFTER": str(frozen_after),
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
            **environment,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "support.apps.supervised", str(folder), *arguments],
            cwd=TESTS,
            env=variables,
            start_new_session=True,
        )

    def marks(self, what: str) -> list[Path]:
        """Return the marks of this kind, oldest first."""
        return sorted(self.folder.glob(f"{what}-*"), key=lambda mark: mark.stat().st_mtime_ns)

    def pids(self, what: str) -> list[int]:
        """Return the process ids that left such a mark, oldest first."""
        return [int(mark.name.rpartition("-")[2]) for mark in self.marks(what)]

    def wait_for(self, what: str, count: int = 1) -> list[int]:
        """Wait for so many marks; returns who left them."""
        wait_until(lambda: len(self.marks(what)) >= count, f"{count} x {what}")
        return self.pids(what)

    def workers(self) -> list[int]:
        """Return the process ids of workers, whether they have begun or not."""
        if not self.forked:
            return children(self.process.pid)
        return [worker for server in self.pids("forks") for worker in children(server)]

    def send(self, number: int) -> None:
        """Send a signal to the supervisor."""
        self.process.send_signal(number)

    def code(self) -> int:
        """Wait for the supervisor's end."""
        return self.process.wait(DEADLINE)

    def close(self) -> None:
        """End whatever is left."""
        for pid in [*self.pids("started"), *self.pids("forked"), *self.pids("forks")]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()


def wait_until(reached: Callable[[], Any], what: str) -> None:
    """Look again until it is so."""
    until = time.monotonic() + DEADLINE
    while not reached():
        if time.monotonic() > until:
            raise AssertionError(f"not reached in {DEADLINE} s: {what}")
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Return whether the process has ended, reaped or not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


Supervise = Callable[..., Supervised]


@pytest.fixture(params=["", "yes"], ids=["spawned", "forked"])
def supervise(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Supervise]:
    """Start a supervisor of spawned workers, and one of forked workers: `supervise("serve", count=2, grace=5)`."""
    started: list[Supervised] = []

    def start(
        *acts: str, count: int = 1, grace: float = 5, others: str = "serve", frozen_after: float = 60
    ) -> Supervised:
        made = Supervised(
            tmp_path,
            str(count),
            str(grace),
            others,
            *acts,
            forked=request.param,
            frozen_after=frozen_after,
        )
        started.append(made)
        return started[-1]

    yield start
    for process in started:
        process.close()


def test_a_killed_worker_is_started_again(supervise: Supervise) -> None:
    """After SIGKILL a new process takes the worker's place, and the death is told with its signal."""
    app = supervise("serve")
    [first] = app.wait_for("started-0")
    os.kill(first, signal.SIGKILL)
    second = app.wait_for("started-0", 2)[1]
    assert second != first
    assert app.pids("death-0--9-False") == [first]
    app.send(signal.SIGTERM)
    assert app.code() == 0


def test_pauses_between_restarts_grow(supervise: Supervise) -> None:
    """A worker that dies at once every time is started ever more rarely."""
    app = supervise("die")
    app.wait_for("started-0", 4)
    moments = [mark.stat().st_mtime for mark in app.marks("started-0")]
    pauses = [late - early for early, late in pairwise(moments)]
    assert pauses[0] >= 0.5
    assert pauses[1] >= 1.0
    assert pauses[2] >= 2.0


def test_a_worker_that_was_useful_is_started_at_once(supervise: Supervise) -> None:
    """However often it dies: what it has applied shows that starting it again is worth it."""
    app = supervise("work")
    app.wait_for("started-0", 6)
    deaths = [mark.stat().st_mtime for mark in app.marks("death-0")]
    starts = [mark.stat().st_mtime for mark in app.marks("started-0")]
    # The fifth of pauses that grow would be eight seconds; what is left is the time to start a process.
    assert starts[5] - deaths[4] < 8


def test_a_worker_that_dies_young_delays_no_other(supervise: Supervise) -> None:
    """Pauses are a worker's own: the others' deaths are mended after the first pause."""
    app = supervise("die", count=2)
    app.wait_for("death-0", 4)
    [second] = app.wait_for("started-1")
    os.kill(second, signal.SIGKILL)
    app.wait_for("started-1", 2)
    died = app.marks("death-1")[0].stat().st_mtime
    # The other worker's pause is eight seconds by now.
    assert app.marks("started-1")[1].stat().st_mtime - died < 7


def test_a_signal_is_obeyed_during_a_pause(supervise: Supervise) -> None:
    """Waiting to start a worker again does not keep the app from ending."""
    app = supervise("die")
    app.wait_for("death-0", 4)
    app.send(signal.SIGTERM)
    app.code()
    assert time.time() - app.marks("death-0")[3].stat().st_mtime < 4, "the pause lasts so long"


def test_other_workers_are_watched_during_a_pause(supervise: Supervise) -> None:
    """While one worker waits to be started again, another one's death is noticed at once."""
    app = supervise("die", count=2)
    [other] = app.wait_for("started-1")
    app.wait_for("death-0", 4)
    os.kill(other, signal.SIGKILL)
    app.wait_for("death-1")
    assert len(app.marks("started-0")) == 4, "the pause of four seconds is over"


def test_a_finished_worker_is_not_started_again(supervise: Supervise) -> None:
    """When every worker has finished, the app ends well."""
    app = supervise("finish")
    assert app.code() == 0
    assert len(app.marks("started-0")) == 1
    assert not app.marks("death")


def test_one_finished_worker_leaves_the_others_running(supervise: Supervise) -> None:
    """Exit code 0 of one worker says nothing about the others."""
    app = supervise("finish", count=2)
    app.wait_for("started-0")
    app.wait_for("started-1")
    app.send(signal.SIGTERM)
    assert app.code() == 0
    assert len(app.marks("stopped-1")) == 1
    assert len(app.marks("started-0")) == 1


def test_a_fatal_code_ends_the_app(supervise: Supervise) -> None:
    """What no restart would mend ends the app with that code, and the other workers in order."""
    app = supervise("fatal", count=2)
    assert app.code() == 3
    assert len(app.marks("started-0")) == 1


def test_a_server_away_at_the_first_start_ends_the_app(supervise: Supervise) -> None:
    """Anyone who starts an app wants to know at once that its database does not answer."""
    app = supervise("away")
    assert app.code() == 5


def test_a_server_away_later_is_waited_for(supervise: Supervise) -> None:
    """A worker that is started again while the database is away does not end the app."""
    app = supervise("die", "away", "serve")
    app.wait_for("started-0", 3)
    app.send(signal.SIGTERM)
    assert app.code() == 0


def test_sigterm_drains_every_worker(supervise: Supervise) -> None:
    """All workers are asked to stop, and end in order."""
    app = supervise("serve", count=3)
    for index in range(3):
        app.wait_for(f"started-{index}")
    app.send(signal.SIGTERM)
    assert app.code() == 0
    assert len(app.marks("stopped")) == 3


def test_sigterm_before_a_worker_has_begun_ends_it_well(supervise: Supervise) -> None:
    """A worker that was still starting has nothing to drain, and its end is no failure."""
    app = supervise("serve", count=2)
    wait_until(app.workers, "a worker process")
    app.send(signal.SIGTERM)
    assert app.code() == 0
    assert not app.marks("death")


def test_a_second_signal_kills_at_once(supervise: Supervise) -> None:
    """A worker that does not end is killed at the second signal, with the documented code; no message is blamed."""
    app = supervise("deaf", grace=60)
    [worker] = app.wait_for("started-0")
    app.send(signal.SIGTERM)
    app.wait_for("ignored-0")
    app.send(signal.SIGTERM)
    assert app.code() == 130
    assert is_gone(worker)
    assert app.pids("death-0--9-True") == [worker]


def test_a_worker_that_outlasts_the_grace_is_killed(supervise: Supervise) -> None:
    """One signal is enough, and the whole stop takes no longer than the grace: an orchestrator kills by then."""
    app = supervise("deaf", grace=3)
    app.wait_for("started-0")
    asked = time.monotonic()
    app.send(signal.SIGTERM)
    assert app.code() == 1
    assert 2 < time.monotonic() - asked < 2 + 3 * PATIENCE


def test_the_grace_holds_also_after_a_fatal_code(supervise: Supervise) -> None:
    """A worker that ignores the end of the app after another's fatal code is killed as well."""
    app = supervise("fatal", count=2, grace=0, others="deaf")
    assert app.code() == 3
    assert is_gone(app.pids("started-1")[0])


def test_workers_drain_when_their_supervisor_dies(supervise: Supervise) -> None:
    """No one would start them again or read their recorders, so they end in order."""
    app = supervise("serve", count=2)
    workers = [app.wait_for(f"started-{index}")[0] for index in range(2)]
    app.send(signal.SIGKILL)
    app.wait_for("stopped", 2)
    wait_until(lambda: all(map(is_gone, workers)), "the workers' end")


def test_a_worker_that_outlasts_its_supervisor_ends_by_itself(supervise: Supervise) -> None:
    """A drain that does not end would have been cut off by the supervisor: the worker does it, so it is no orphan for ever."""
    app = supervise("deaf", grace=1)
    [worker] = app.wait_for("started-0")
    app.send(signal.SIGKILL)
    app.wait_for("ignored-0")
    wait_until(lambda: is_gone(worker), "the worker's end")


def test_a_forked_process_does_not_hold_the_end(supervise: Supervise) -> None:
    """A process that a handler has forked ends by a signal as any other, and its worker ends without it."""
    app = supervise("fork", grace=60)
    [forked] = app.wait_for("forked")
    app.wait_for("started-0")
    app.send(signal.SIGTERM)
    assert app.code() == 0
    assert not is_gone(forked)
    os.kill(forked, signal.SIGTERM)
    wait_until(lambda: is_gone(forked), "the end of the forked process")


def test_a_stopped_worker_is_replaced(supervise: Supervise) -> None:
    """It is reported, then killed and started again; what it ran is not at fault."""
    app = supervise("serve", frozen_after=4)
    [first] = app.wait_for("started-0")
    os.kill(first, signal.SIGSTOP)
    assert app.wait_for("silent-0")[0] == first
    app.wait_for("started-0", 2)
    assert app.pids("death-0--9-True") == [first]


@pytest.mark.parametrize(("spoke", "killed"), [(False, []), (True, ["SIGKILL"])])
def test_a_worker_that_still_starts_has_longer(spoke: bool, killed: list[str]) -> None:
    """Two minutes without a word are an end for a worker that has spoken, and a slow start for one that has not."""
    done: list[str] = []
    process: Any = SimpleNamespace(pid=os.getpid(), kill=lambda: done.append("SIGKILL"))
    word, worker = multiprocessing.Pipe(duplex=False)
    supervisor = Supervisor(lambda *_: 0, 1, timedelta(seconds=30), lambda _: None, frozenset())
    child = Child(0, process, word, 0.0, first=True)
    supervisor._children[0] = child
    if spoke:
        worker.send_bytes(b"b0 0")
    supervisor._listen()
    child.silence = 120.0
    supervisor._listen()
    word.close()
    worker.close()
    assert done == killed


@pytest.mark.parametrize("supervise", ["yes"], ids=["forked"], indirect=True)
def test_workers_of_a_killed_fork_server_are_replaced_by_spawned_ones(supervise: Supervise) -> None:
    """They drain, no message is at fault for their end, and the supervisor starts others by itself."""
    app = supervise("serve", count=2)
    first = {app.wait_for(f"started-{index}")[0] for index in range(2)}
    os.kill(app.pids("forks")[0], signal.SIGKILL)
    second = {app.wait_for(f"started-{index}", 2)[1] for index in range(2)}
    assert set(app.pids("stopped")) == first
    assert {*app.pids("death-0--9-True"), *app.pids("death-1--9-True")} == first
    assert second <= set(children(app.process.pid))
    app.send(signal.SIGTERM)
    assert app.code() == 0


def test_a_signal_to_the_whole_process_group_drains(supervise: Supervise) -> None:
    """Service managers and terminals send it to all processes at once: each worker still finishes what it began."""
    app = supervise("serve", count=2)
    workers = {app.wait_for(f"started-{index}")[0] for index in range(2)}
    os.killpg(app.process.pid, signal.SIGTERM)
    assert app.code() == 0
    assert set(app.pids("stopped")) == workers
    assert not app.marks("death")


def test_reload_drains_and_starts_again_at_once(supervise: Supervise) -> None:
    """Every worker ends in order and is started again, without a pause."""
    app = supervise("serve", count=2)
    first = {app.wait_for(f"started-{index}")[0] for index in range(2)}
    app.send(signal.SIGHUP)
    again = {app.wait_for(f"started-{index}", 2)[1] for index in range(2)}
    assert not first & again
    assert set(app.pids("stopped")) == first
    app.send(signal.SIGTERM)
    assert app.code() == 0


def test_a_broken_edit_waits_for_the_next_one(supervise: Supervise) -> None:
    """After a reload, a configuration that cannot run ends nothing: the next reload may mend it."""
    app = supervise("serve", "fatal", "serve")
    app.wait_for("started-0")
    app.send(signal.SIGHUP)
    app.wait_for("death-0-3")
    app.send(signal.SIGHUP)
    app.wait_for("started-0", 3)
    app.send(signal.SIGTERM)
    assert app.code() == 0


def children(pid: int) -> list[int]:
    """Return the process ids of a process's children."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
