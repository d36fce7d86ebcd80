"""Worker processes for tests of the supervisor, and a program that supervises them; each writes what it does into a folder."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

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
            `finish`, `die`, `work` (and die), `deaf`.
    """

    folder: Path
    others: str
    acts: tuple[str, ...]

    def __call__(self, index: int, applied: Callable[[], None]) -> int:
        """Do what is due at this start."""
        before = len(list(self.folder.glob(f"started-{index}-*")))
        act = self.acts[min(before, len(self.acts) - 1)] if index == 0 else self.others
        asked = threading.Event()
        if act == "deaf":
            signal.signal(signal.SIGTERM, lambda *_: self.note(f"ignored-{index}"))
        else:
            signal.signal(signal.SIGTERM, lambda *_: asked.set())
        self.note(f"started-{index}")
        if act == "work":
            applied()
        if act in {"die", "work"}:
            os.kill(os.getpid(), signal.SIGKILL)
        if act in {"serve", "deaf"}:
            while not asked.wait(0.02):
                pass
            self.note(f"stopped-{index}")
        if act == "fatal" and self.others == "deaf":
            while not list(self.folder.glob("started-1-*")):
                asked.wait(0.02)
        return {"fatal": FATAL_CODE, "away": AWAY_CODE}.get(act, 0)

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


def main(folder: str, count: str, grace: str, others: str, *acts: str) -> int:
    """Supervise `count` workers; SIGHUP reloads them."""
    place = Path(folder)
    supervisor = Supervisor(
        Acting(place, others, acts),
        int(count),
        timedelta(seconds=float(grace)),
        Noting(place),
        frozenset({FATAL_CODE}),
        frozenset({AWAY_CODE}),
    )
    signal.signal(signal.SIGHUP, lambda *_: supervisor.reload())
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
