"""The real program `oncemq`, as a person starts it: processes of its own, in a folder of the test's."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Protocol

from support.patience import PATIENCE

_OURS = ("ONCEMQ_", "PYTEST_", "COVERAGE_")


def eventually(
    reached: Callable[[], object], wanted: str, timeout: float = 60.0, said: Callable[[], str] = str
) -> None:
    """Wait until `reached()`, longer on a slow machine; for states of other processes, which no one signals.

    A failure shows what they `said()`.
    """
    timeout *= PATIENCE
    deadline, pause = monotonic() + timeout, Event()
    while not reached():
        if monotonic() > deadline:
            raise AssertionError(f"waited {timeout:.0f} s for {wanted}\n{said()[-3000:]}")
        pause.wait(0.02)


class Program:
    """Runs `oncemq` in `folder`.

    Args:
        folder: the working directory, where app.yaml lies.
        environment: variables besides those of this process.
        python: the interpreter that has OnceMQ.
    """

    def __init__(
        self, folder: Path, environment: Mapping[str, str] | None = None, python: str = sys.executable
    ) -> None:
        self.folder = folder
        self.log = folder / "program.log"
        self._python = python
        inherited = {name: text for name, text in os.environ.items() if not name.startswith(_OURS)}
        # A width of its own: messages must not wrap as the terminal of anyone who runs the tests has it.
        self.environment = {**inherited, "COLUMNS": "200", **(environment or {})}

    def call(
        self, *arguments: str, stdin: str | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return self.python("-m", "oncemq", *arguments, stdin=stdin, timeout=timeout)

    def python(
        self, *arguments: str, stdin: str | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run Python to its end."""
        return subprocess.run(
            [self._python, *arguments],
            cwd=self.folder,
            env=self.environment,
            input="" if stdin is None else stdin,
            capture_output=True,
            text=True,
            timeout=timeout * PATIENCE,
            check=False,
        )

    def succeed(self, *arguments: str, timeout: float = 60) -> str:
        """Run a command that must succeed; returns what it printed."""
        done = self.call(*arguments, timeout=timeout)
        assert done.returncode == 0, f"oncemq {' '.join(arguments)}: {done.returncode}\n{done.stderr}"
        return done.stdout

    @contextmanager
    def started(self, *arguments: str) -> Iterator["Started"]:
        """Start a command, and end it with the block if it still runs."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [self._python, "-m", "oncemq", *arguments],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        running = Started(process, self.log)
        try:
            yield running
        finally:
            running.end()


class Process(Protocol):
    """What a test asks of a process that it has started."""

    pid: int

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""

    def wait(self, timeout: float = 60.0) -> int:
        """Wait for its end; returns the exit code."""

    def send_signal(self, number: signal.Signals) -> None:
        """Signal it."""


class Started:
    """A command that runs; what it prints is in `log`."""

    def __init__(self, process: Process, log: Path) -> None:
        self._process = process
        self._log = log
        self.pid = process.pid

    @property
    def running(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def said(self) -> str:
        """Return everything it has printed."""
        return self._log.read_text(errors="replace")

    def wait(self, timeout: float = 60) -> int:
        """Wait for its end, longer on a slow machine; returns the exit code."""
        return self._process.wait(timeout * PATIENCE)

    def ask(self) -> None:
        """Send SIGTERM."""
        self._process.send_signal(signal.SIGTERM)

    def drain(self, timeout: float = 60) -> int:
        """Send SIGTERM and wait for the ordered end; returns the exit code."""
        self.ask()
        return self.wait(timeout)

    def end(self) -> None:
        """End it and every process that it started, whatever state they are in."""
        if self.running:
            self.ask()
            with suppress(subprocess.TimeoutExpired):
                self.wait(10)
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        finally:
            self._process.wait()
