"""The program `oncemq`, forked from a process that has imported it: a command costs milliseconds instead of a second and more.

What a test says about the start of a process itself needs a real one: `support.apps.program.Program`.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from support.apps.program import Program, Started
from support.forking import Child, serve, shared_forks
from support.patience import PATIENCE

_MODULE = "support.apps.warm"
MODULES = (
    "oncemq.cli.main",
    "oncemq.cli.commands.check",
    "oncemq.cli.commands.dead_letters",
    "oncemq.cli.commands.publish",
    "oncemq.cli.commands.run",
    "oncemq.cli.commands.status",
    "oncemq.cli.commands.tables",
    "oncemq.cli.demo.command",
    "oncemq_adapters.embedded.adapter",
    "oncemq_adapters.rabbitmq.adapter",
    "oncemq_strategies.unique_key.strategy",
    "psycopg",
    "pymysql",
    "sqlalchemy.dialects.mysql.pymysql",
    "sqlalchemy.dialects.postgresql.psycopg",
)
"""What most commands need."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of `oncemq`; travels as JSON.

    Args:
        arguments: of the command line.
        folder: the working directory.
        environment: all variables.
        files: what the process reads as standard input, and writes as standard output and standard error.
    """

    arguments: tuple[str, ...]
    folder: str
    environment: dict[str, str]
    files: tuple[str, str, str]


class WarmProgram(Program):
    """Runs commands of `oncemq` in forked processes, each a session of its own that is killed and drained as any other."""

    def call(
        self, *arguments: str, stdin: str | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        with TemporaryDirectory() as place:
            files = tuple(str(Path(place, name)) for name in ("stdin", "stdout", "stderr"))
            Path(files[0]).write_text(stdin or "")
            command = Command(arguments, str(self.folder), self.environment, files)
            child = shared_forks(_MODULE).fork(json.dumps(asdict(command)))
            try:
                code = child.wait(timeout)
            finally:
                child.kill()
            said = [Path(file).read_text() for file in files[1:]]
        return subprocess.CompletedProcess(["oncemq", *arguments], code, *said)

    @contextmanager
    def started(self, *arguments: str) -> Iterator[Started]:
        """Start a command, and end it with the block if it still runs."""
        self.log.touch()
        files = (os.devnull, str(self.log), str(self.log))
        command = Command(arguments, str(self.folder), self.environment, files)
        running = Started(Forked(shared_forks(_MODULE).fork(json.dumps(asdict(command)))), self.log)
        try:
            yield running
        finally:
            running.end()


class Forked:
    """A forked process with the face of `subprocess.Popen`."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self.pid = child.pid

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        return self._child.code

    def wait(self, timeout: float = 60.0) -> int:
        """Wait for its end; returns the exit code.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        try:
            return self._child.wait(timeout / PATIENCE)
        except AssertionError as error:
            raise subprocess.TimeoutExpired("oncemq", timeout) from error

    def send_signal(self, number: signal.Signals) -> None:
        """Signal it, if it still runs."""
        self._child.send(number)


def run(line: str) -> int:
    """Become the program, as `python -m oncemq` starts it."""
    command = Command(**json.loads(line))
    os.setsid()
    os.chdir(command.folder)
    os.environ.clear()
    os.environ.update(command.environment)
    for number, file in enumerate(command.files):
        descriptor = os.open(
            file, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.path[0] = command.folder
    sys.argv[:] = ["oncemq", *command.arguments]
    from oncemq.cli.main import main  # noqa: PLC0415 - the process that orders needs none of it

    try:
        main()
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    finally:
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    serve(run, MODULES)
