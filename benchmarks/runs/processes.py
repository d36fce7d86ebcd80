"""A peer's processes: started together, watched, their processor time counted, and stopped in order."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.stage.servers import ROOT

_TICKS = os.sysconf("SC_CLK_TCK")
_GRACE = 30.0


class Processes:
    """Processes that consume together.

    Args:
        command: what each one runs.
        count: how many.
        environment: beside our own.
        log: where their output goes; shown when something goes wrong.
    """

    def __init__(self, command: Sequence[str], count: int, environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        # Behind what was given: `benchmarks.compare` measures other commits by their path.
        path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))
        with log.open("wb") as output:
            self._all = [
                subprocess.Popen(
                    command,
                    cwd=ROOT,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "PYTHONPATH": path, **environment},
                )
                for _ in range(count)
            ]

    def insist(self) -> None:
        """Raise RuntimeError if one has ended."""
        if any(process.poll() is not None for process in self._all):
            raise RuntimeError(f"ended early:\n{self.tail()}")

    def tail(self) -> str:
        """Return the end of what they said."""
        return self._log.read_text(errors="replace")[-3000:]

    def wait(self, seconds: float) -> int:
        """Wait for all to end by themselves; returns the worst exit code."""
        return max(process.wait(seconds) for process in self._all)

    def cpu(self) -> float:
        """Return the processor seconds used so far, children included."""
        children = _children()
        todo, seconds = [process.pid for process in self._all], 0.0
        while todo:
            pid = todo.pop()
            seconds += _seconds(pid)
            todo += children.get(pid, ())
        return seconds

    def stop(self) -> None:
        """Ask all to end in order, and end those that do not."""
        for process in self._all:
            process.terminate()
        until = time.monotonic() + _GRACE
        for process in self._all:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, until - time.monotonic()))
            if process.poll() is None:
                process.kill()
                process.wait()


@contextmanager
def running(
    command: Sequence[str], count: int, environment: Mapping[str, str], log: Path
) -> Iterator[Processes]:
    """Start processes, and stop them at the end."""
    processes = Processes(command, count, environment, log)
    try:
        yield processes
    finally:
        processes.stop()


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _seconds(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS if fields else 0.0


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (fields := _stat(int(folder.name))):
            found.setdefault(int(fields[1]), []).append(int(folder.name))
    return found
