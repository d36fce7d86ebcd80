"""Children that start in milliseconds: one process imports everything, starts no thread, and forks each child on order.

The product spawns; here a fork is safe because the parent does nothing else, and it makes hundreds of kills cheap.
"""

import json
import os
import select
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from threading import Condition, Lock, Thread
from typing import Any, Self

from storm.attack.child import Order, main, order_from
from support.patience import PATIENCE

TESTS = Path(__file__).parents[2]


class Child:
    """A forked process."""

    def __init__(self, nursery: "Nursery", pid: int) -> None:
        self._nursery = nursery
        self.pid = pid

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._nursery.ended.get(self.pid)

    def wait(self, timeout: float = 60.0) -> int:
        """Wait for its end; longer on a slow machine."""
        timeout *= PATIENCE
        with self._nursery.changed:
            if not self._nursery.changed.wait_for(lambda: self.pid in self._nursery.ended, timeout):
                raise AssertionError(
                    f"process {self.pid} still runs after {timeout:.0f} s\n{self._nursery.said()}"
                )
        return self._nursery.ended[self.pid]

    def send(self, number: signal.Signals) -> bool:
        """Signal it, if it still runs."""
        if self.code is not None:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def kill(self) -> int:
        """SIGKILL it."""
        self.send(signal.SIGKILL)
        return self.wait()

    def drain(self, timeout: float = 60.0) -> int:
        """SIGTERM it and wait for the ordered end."""
        self.send(signal.SIGTERM)
        return self.wait(timeout)


class Nursery:
    """Starts and buries children; use as a context manager.

    Args:
        folder: where `children.log` collects what they print.
    """

    def __init__(self, folder: Path) -> None:
        self._log = folder / "children.log"
        self.changed = Condition()
        self._starting = Lock()
        self.ended: dict[int, int] = {}
        self._born: list[int] = []
        self._children: list[Child] = []
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "storm.attack.nursery"],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(TESTS), "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
            )
        self._ears = Thread(target=self._listen, daemon=True, name="nursery")
        self._ears.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.send(signal.SIGKILL)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(30 * PATIENCE)
        self._ears.join(30)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def start(self, order: Order) -> Child:
        """Start a child."""
        if self._process.stdin is None:
            raise AssertionError("the nursery is closed")
        with self._starting, self.changed:
            born = len(self._born)
            self._process.stdin.write(json.dumps(asdict(order)) + "\n")
            if not self.changed.wait_for(lambda: len(self._born) > born, 30 * PATIENCE):
                raise AssertionError(f"no child was born\n{self.said()}")
            child = Child(self, self._born[born])
        self._children.append(child)
        return child

    def said(self, most: int = 4000) -> str:
        """Return the end of what children have printed."""
        return self._log.read_text(errors="replace")[-most:]

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            word, pid, code = line.split()
            with self.changed:
                if word == "born":
                    self._born.append(int(pid))
                else:
                    self.ended[int(pid)] = int(code)
                self.changed.notify_all()


def serve() -> None:
    """Fork on each line of standard input, say who was born and who ended; at its end, end everyone."""
    heard, bell = os.pipe()
    os.set_blocking(bell, False)
    signal.set_wakeup_fd(bell)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    living: set[int] = set()
    rest = b""
    while True:
        ready, _, _ = select.select([0, heard], [], [])
        if heard in ready:
            os.read(heard, 4096)
            _bury(living)
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                break
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                living.add(_fork(order_from(line.decode())))
    for pid in living:
        os.kill(pid, signal.SIGKILL)


def _fork(order: Order) -> int:
    pid = os.fork()
    if pid:
        _say("born", pid, 0)
        return pid
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code = 1
    try:
        os.dup2(2, 1)
        code = main(order)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _bury(living: set[int]) -> None:
    while living:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        living.discard(pid)
        _say("ended", pid, os.waitstatus_to_exitcode(status))


def _say(*words: Any) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def import_everything() -> None:
    """Import what a child needs, once, before the first one is forked."""
    for name in (
        "oncemq_adapters.embedded.adapter",
        "oncemq_adapters.kafka.adapter",
        "oncemq_adapters.rabbitmq.adapter",
        "oncemq_adapters.rocketmq.remoting.adapter",
        "oncemq_strategies.sequence.strategy",
        "oncemq_strategies.state_machine.strategy",
        "oncemq_strategies.unique_key.strategy",
        "psycopg",
        "pymysql",
        "sqlalchemy.dialects.mysql.pymysql",
        "sqlalchemy.dialects.postgresql.psycopg",
    ):
        with suppress(ModuleNotFoundError):  # the environment of one driver has no others
            import_module(name)


if __name__ == "__main__":
    import_everything()
    serve()
