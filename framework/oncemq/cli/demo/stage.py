"""Environment of the demo: a folder with the example app, its tables, and its worker processes in a child process."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import oncemq
from oncemq.errors import OnceMQError

_EXAMPLE = "order-lifecycle"
_RECORDERS = "*.recorder"


def example_folder() -> Path:
    """Return the example app's folder: inside the installed package, or beside it in a checkout."""
    package = Path(oncemq.__file__).parent
    for folder in (package / "examples" / _EXAMPLE, package.parents[1] / "examples" / _EXAMPLE):
        if folder.is_dir():
            return folder
    raise OnceMQError(f"the example {_EXAMPLE!r} is not installed: install oncemq again")


class Stage:
    """A separate app in `folder`.

    Args:
        folder: empty; everything the demo writes goes here.
        variables: variables of the app's YAML, such as BROKER and DATABASE.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.folder = folder
        self.log = folder / "run.log"
        self._environment = {**os.environ, **variables}
        self._process: subprocess.Popen[bytes] | None = None
        for name in ("app.yaml", "handlers.py"):
            shutil.copy(example_folder() / name, folder)

    @property
    def app(self) -> Path:
        """The app's YAML."""
        return self.folder / "app.yaml"

    def create_tables(self, database: str) -> None:
        """Create the app's own table, and configure the app with this URL.

        Args:
            database: a SQLAlchemy URL with its driver.

        Raises:
            OnceMQError: it failed; contains the app's output.
        """
        self._environment["DATABASE"] = database
        done = subprocess.run(
            [sys.executable, "handlers.py"],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise OnceMQError(f"the demo's own table cannot be created: {_last_line(done.stderr)}")

    def log_end(self) -> str:
        """Return the last lines of the app's output."""
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""

    def start(self, processes: int) -> None:
        """Start the app; it ends by itself when it is idle."""
        command = [sys.executable, "-m", "oncemq", "run", "--until-idle", "3s"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                [*command, "--processes", str(processes)],
                cwd=self.folder,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def running(self) -> bool:
        """Return whether the app is running."""
        return self._process is not None and self._process.poll() is None

    def kill_a_worker(self) -> int | None:
        """Kill one worker process with SIGKILL; returns its process id, None if there is none yet."""
        recorders = sorted((self.folder / ".oncemq").glob(_RECORDERS))
        for recorder in recorders:
            process = int(recorder.name.split("@")[1].partition("-")[0])
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
            return process
        return None

    def finish(self) -> int:
        """Wait for the app's end; returns its exit code."""
        if self._process is None:
            return 0
        try:
            return self._process.wait(timeout=120)
        finally:
            self.stop()

    def stop(self) -> None:
        """End the app if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no reason was given"
