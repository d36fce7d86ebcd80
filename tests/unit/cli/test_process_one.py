"""The program as process 1 of a container, made by `unshare`: it ends when it is told to, and leaves no dead processes."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

from support.patience import PATIENCE

# Anyone may make a container with users of its own; root needs none.
_USERS = () if os.geteuid() == 0 else ("--user", "--map-root-user")
CONTAINER = ("unshare", *_USERS, "--pid", "--fork", "--mount-proc", "--kill-child")

APP = """
app: shop
brokers: {{local: {{url: "embedded:///{folder}/broker.db"}}}}
database: {{url: "sqlite:///{folder}/shop.db"}}
topics: {{order.paid: {{key: body.order, strategies: [unique_key]}}}}
consumers: {{award: {{topic: order.paid, handler: "handlers:award"}}}}
"""

# A shell that starts another one and ends: its child becomes one of process 1, and this waits until it is reaped.
HANDLERS = """
import subprocess
from pathlib import Path
from sqlalchemy import text
from sqlalchemy.orm import Session

def award(order: dict, session: Session) -> None:
    started = subprocess.run(
        ["sh", "-c", "sh -c 'exit 0' > /dev/null & echo $!"], stdout=subprocess.PIPE, text=True, check=True
    )
    while Path(f"/proc/{started.stdout.strip()}").exists():
        pass
    session.execute(text("INSERT INTO points (order_id) VALUES (:id)"), {"id": order["order"]})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with its tables."""
    (tmp_path / "app.yaml").write_text(APP.format(folder=tmp_path))
    (tmp_path / "handlers.py").write_text(HANDLERS)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE points (order_id TEXT)")
    oncemq(tmp_path, "tables", "create")
    return tmp_path


def oncemq(folder: Path, *arguments: str, inside: tuple[str, ...] = (), lines: str = "") -> None:
    """Run the program to its end."""
    command = [*inside, sys.executable, "-m", "oncemq", *arguments]
    done = subprocess.run(
        command, cwd=folder, input=lines, capture_output=True, text=True, timeout=60 * PATIENCE, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    with suppress(FileNotFoundError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def until(look: Callable[[], list[int]]) -> list[int]:
    """Return what is found, within ten seconds, or more on a slow machine."""
    deadline = monotonic() + 10 * PATIENCE
    while monotonic() < deadline:
        if found := look():
            return found
        Event().wait(0.001)
    raise AssertionError("not within ten seconds")


@pytest.fixture
def container(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`oncemq run` as process 1, just started."""
    with subprocess.Popen(
        [*CONTAINER, sys.executable, "-m", "oncemq", "run"], cwd=folder, stderr=subprocess.PIPE
    ) as running:
        yield running
        running.kill()


def test_a_signal_during_the_start_ends_it(container: subprocess.Popen[bytes]) -> None:
    """SIGTERM before the program has handlers of its own is not dropped."""
    first = until(lambda: children_of(container.pid))[0]
    until(lambda: children_of(first))
    os.kill(first, signal.SIGTERM)
    assert container.wait(timeout=30 * PATIENCE) == 128 + signal.SIGTERM


def test_a_signal_drains_it(container: subprocess.Popen[bytes]) -> None:
    """Once it runs, SIGTERM lets it finish what it began and end with 0."""
    assert container.stderr is not None
    first = until(lambda: children_of(container.pid))[0]
    while b"consumer started" not in (line := container.stderr.readline()):
        assert line
    os.kill(first, signal.SIGTERM)
    container.stderr.read()
    assert container.wait(timeout=30 * PATIENCE) == 0


SCRIPT = """
import sys, threading
from oncemq import App

if "thread" in sys.argv:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("before")
code = App.from_yaml().run("1s" if "idle" in sys.argv else None)
print("after")
sys.exit(code + 7)
"""


def script(folder: Path, *arguments: str) -> tuple[str, ...]:
    """Return the command of a script with `App.run()` as process 1."""
    (folder / "script.py").write_text(SCRIPT)
    return (*CONTAINER, sys.executable, "script.py", *arguments)


def test_what_handlers_leave_behind_is_reaped_beside_a_script(folder: Path) -> None:
    """`App.run()` as process 1 reaps, too; what the script does before and after is done once, and its exit code counts."""
    publish(folder, 3)
    command = script(folder, "idle")
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60 * PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (7, "before\nafter\n"), done.stderr
    assert applied(folder) == 3


def test_a_signal_drains_a_script(folder: Path) -> None:
    """SIGTERM to process 1 reaches `App.run()`, which returns."""
    with subprocess.Popen(script(folder), cwd=folder, stderr=subprocess.PIPE) as running:
        assert running.stderr is not None
        first = until(lambda: children_of(running.pid))[0]
        while b"consumer started" not in (line := running.stderr.readline()):
            assert line
        os.kill(first, signal.SIGTERM)
        running.stderr.read()
        assert running.wait(timeout=30 * PATIENCE) == 7


def test_a_script_with_threads_stays_process_1_and_says_so(folder: Path) -> None:
    """A fork would lose its threads; nothing is reaped, and the log says what to do."""
    command = script(folder, "idle", "thread")
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60 * PATIENCE, check=False
    )
    assert done.returncode == 7, done.stderr
    assert "are not reaped" in done.stderr


def publish(folder: Path, count: int) -> None:
    """Publish so many orders."""
    orders = "".join(json.dumps({"order": str(number)}) + "\n" for number in range(count))
    oncemq(folder, "publish", "order.paid", lines=orders)


def applied(folder: Path) -> int:
    """Return how many orders have their points."""
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        return int(database.execute("SELECT COUNT(*) FROM points").fetchone()[0])


def test_what_handlers_leave_behind_is_reaped(folder: Path) -> None:
    """A process whose parent has ended is no zombie for longer than a moment."""
    publish(folder, 5)
    oncemq(folder, "run", "--until-idle", "1s", inside=CONTAINER)
    assert applied(folder) == 5
