"""Worker processes for tests of the supervisor, and a program that supervises them; each writes what it does into a folder."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue

from oncemq.common.fork_server import ForkServer
from oncemq.engine.supervision.child import Reports
from oncemq.engine.supervision.recycling import RecycleRule
from oncemq.engine.supervision.replacing import Replacement
from oncemq.engine.supervisor import Death, Supervisor

FATAL_CODE = 3
AWAY_CODE = 5


@dataclass(frozen=True, slots=True)
class Acting:
    """A worker process that behaves as told.

    Args:
        folder: where it writes `started`, `stopped` … with its index and process id.
        others: what every other worker than worker 0 does.
        acts: what each start of worker 0 does, the last for all further ones: `serve`, `fatal`, `away`,
            `finish`, `die`, `work` (and die), `deaf`, `fork` (a process that does not end by itself), `unready` (for ever), `late` (ready when the folder has a file `ready`).
            A successor, whose number is `count` or more, counts as a start of worker 0.
        count: the number of workers.
    """

    folder: Path
    others: str
    acts: tuple[str, ...]
    count: int = 1

    def __call__(self, index: int, reports: Reports) -> int:
        """Do what is due at this start."""
        played = index == 0 or index >= self.count
        before = sum(
            len(list(self.folder.glob(f"started-{number}-*"))) for number in (0, *range(self.count, 9))
        )
        act = self.acts[min(before, len(self.acts) - 1)] if played else self.others
        # A queue and no Event: a signal may come while this thread holds the Event's lock.
        asked: SimpleQueue[None] = SimpleQueue()
        if act == "deaf":
            signal.signal(signal.SIGTERM, lambda *_: self.note(f"ignored-{index}"))
        else:
            signal.signal(signal.SIGTERM, lambda *_: asked.put(None))
        self.note(f"started-{index}")
        if act == "work":
            reports.applied()
        if act in {"die", "work"}:
            os.kill(os.getpid(), signal.SIGKILL)
        if act == "fork":
            self.fork()
        if act != "unready":
            reports.watch(lambda: act != "late" or (self.folder / "ready").exists())
        if act in {"serve", "deaf", "fork", "unready", "late"}:
            # The look at the queue lets Python run the handler of a signal that another thread received.
            while asked.empty():
                time.sleep(0.02)
            self.note(f"stopped-{index}")
        if act == "fatal" and self.others == "deaf":
            while not list(self.folder.glob("started-1-*")):
                time.sleep(0.02)
        return {"fatal": FATAL_CODE, "away": AWAY_CODE}.get(act, 0)

    def fork(self) -> None:
        """Start a process as a handler might; the exit of this one waits for it."""
        multiprocessing.get_context("fork").Process(target=self.stay).start()

    def stay(self) -> None:
        """Run until a signal ends this process, as it does any other."""
        self.note("forked")
        threading.Event().wait()

    def note(self, what: str) -> None:
        """Leave a mark that the test waits for."""
        (self.folder / f"{what}-{os.getpid()}").touch()


@dataclass(frozen=True, slots=True)
class Noting:
    """Writes every death into the folder."""

    folder: Path

    def __call__(self, death: Death) -> None:
        """Leave a mark."""
        (self.folder / f"death-{death.index}-{death.code}-{death.ordered}-{death.pid}").touch()

    def note(self, what: str) -> None:
        """Leave a mark."""
        (self.folder / f"{what}-{os.getpid()}").touch()

    def step(self, step: Replacement) -> None:
        """Leave a mark."""
        (self.folder / f"{step.step.name}-{step.old}-{step.new}-{step.reason}-{step.old_pid}").touch()

    def silence(self, index: int, pid: int, _seconds: float) -> None:
        """Leave a mark."""
        (self.folder / f"silent-{index}-{pid}").touch()


def main(folder: str, count: str, grace: str, others: str, *acts: str) -> int:
    """Supervise `count` workers; SIGHUP restarts them, SIGUSR1 replaces one after the other."""
    forks = ForkServer.started() if os.environ.get("FORKED") else None
    place = Path(folder)
    if forks is not None:
        (place / f"forks-{forks.pid}").touch()
    noting = Noting(place)
    acting = Acting(place, others, acts, int(count))
    every = os.environ.get("RECYCLE_EVERY")
    supervisor = Supervisor(
        acting,
        int(count),
        timedelta(seconds=float(grace)),
        noting,
        frozenset({FATAL_CODE}),
        frozenset({AWAY_CODE}),
        on_silence=noting.silence,
        frozen_after=timedelta(seconds=float(os.environ.get("FROZEN_AFTER", "60"))),
        forks=forks,
        recycle=RecycleRule(every=timedelta(seconds=float(every))) if every else None,
        on_replacement=noting.step,
        ready_within=float(os.environ.get("READY_WITHIN", "60")),
    )

    def replaced(succeeded: bool) -> None:
        noting.note(f"replaced-{succeeded}")

    signal.signal(signal.SIGUSR1, lambda *_: supervisor.replace(replace(acting, others="serve"), replaced))
    signal.signal(signal.SIGHUP, lambda *_: supervisor.reload())
    try:
        return supervisor.run()
    finally:
        if forks is not None:
            forks.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
