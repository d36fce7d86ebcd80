"""Tests of `oncemq run` as a real program: worker processes on the embedded broker and SQLite, killed and stopped."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from support.apps.warm import WarmProgram
from support.patience import PATIENCE

DEADLINE = 60.0 * PATIENCE

APP = """
app: shop
grace: 10s
brokers:
  local: {{url: "embedded:///{folder}/broker.db"}}
database: {{url: "sqlite:///{folder}/shop.db"}}
topics:
  order.paid:
    key: body.order
    strategies: [unique_key]
consumers:
  award: {{topic: order.paid, handler: "handlers:award", retry: {{attempts: 3, backoff: {{first: 100ms}}}}{more}}}
"""

HANDLERS = """
import os, signal, time
from pathlib import Path
from sqlalchemy import text
from sqlalchemy.orm import Session

HERE = Path(__file__).parent

def award(order: dict, session: Session) -> None:
    session.execute(text("INSERT INTO points (order_id) VALUES (:id)"), {"id": order["order"]})
    mark = HERE / f"ran-{order['order']}-{time.monotonic_ns()}-{os.getpid()}"
    what = order.get("does")
    if what:
        mark.touch()
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "kill-once" and len(list(HERE.glob(f"ran-{order['order']}-*"))) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "hang":
        time.sleep(600)
    if what == "wait":
        while not (HERE / "go-on").exists():
            time.sleep(0.01)
"""


class Shop:
    """A project folder, and the programs that were started in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs: list[subprocess.Popen[str]] = []
        self.write("app.yaml", APP.format(folder=folder, more=""))
        self.write("handlers.py", HANDLERS)
        with closing(sqlite3.connect(folder / "shop.db")) as database:
            database.execute("CREATE TABLE points (order_id TEXT)")
        self.finish("tables", "create")

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        (self.folder / name).write_text(text)

    def options(self, more: str) -> None:
        """Give the consumer more options."""
        self.write("app.yaml", APP.format(folder=self.folder, more=f", {more}"))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start `oncemq …`."""
        program = subprocess.Popen(
            [sys.executable, "-m", "oncemq.cli.main", *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.programs.append(program)
        return program

    def finish(self, *arguments: str, lines: str = "") -> str:
        """Run `oncemq …` to its end; returns what it said."""
        done = WarmProgram(self.folder).call(*arguments, stdin=lines)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def publish(self, *orders: dict[str, Any]) -> None:
        """Publish messages."""
        self.finish("publish", "order.paid", lines="".join(json.dumps(order) + "\n" for order in orders))

    def points(self) -> list[str]:
        """Return the orders that points were given for, sorted."""
        with closing(sqlite3.connect(self.folder / "shop.db", timeout=10)) as database:
            return sorted(row[0] for row in database.execute("SELECT order_id FROM points"))

    def ran(self, order: str) -> list[int]:
        """Return the process ids in which this order's handler was called, oldest first."""
        marks = sorted(self.folder.glob(f"ran-{order}-*"), key=lambda mark: int(mark.name.split("-")[-2]))
        return [int(mark.name.rpartition("-")[2]) for mark in marks]

    def dead(self) -> list[dict[str, Any]]:
        """Return the dead letters."""
        said = self.finish("dead-letters", "list", "--json")
        return [json.loads(line) for line in said.splitlines()]

    def recorders(self) -> list[Path]:
        """Return what flight recorders and presences are left."""
        state = self.folder / ".oncemq"
        return [path for path in state.iterdir() if path.suffix in {".recorder", ".alive", ".new"}]

    def close(self) -> None:
        """End whatever is left."""
        for program in self.programs:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
            for stream in (program.stdin, program.stdout):
                if stream is not None:
                    stream.close()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A project whose consumer inserts a row for each order."""
    made = Shop(tmp_path)
    yield made
    made.close()


def wait_until(reached: Callable[[], Any], what: str) -> None:
    """Look again until it is so."""
    until = time.monotonic() + DEADLINE
    while not reached():
        if time.monotonic() > until:
            raise AssertionError(f"not reached in {DEADLINE} s: {what}")
        time.sleep(0.02)


def orders(count: int, **fields: Any) -> list[dict[str, Any]]:
    """Return orders 100, 101 …: their names sort as they were published."""
    return [{"order": f"{100 + number}", **fields} for number in range(count)]


def test_run_until_idle_applies_each_message_once(shop: Shop) -> None:
    """Every order twice on the broker is once in the table, and the program ends with 0 by itself."""
    shop.publish(*orders(50), *orders(50))
    shop.finish("run", "--until-idle", "1s")
    assert shop.points() == [order["order"] for order in orders(50)]
    assert not shop.recorders()


def test_sigterm_drains_and_ends_with_0(shop: Shop) -> None:
    """What runs is finished and committed, the exit code is 0, and nothing of the state folder is left over."""
    shop.publish({"order": "1", "does": "wait"})
    program = shop.start("run")
    wait_until(lambda: shop.ran("1"), "the handler")
    program.send_signal(signal.SIGTERM)
    shop.write("go-on", "")
    said, _ = program.communicate(timeout=DEADLINE)
    assert program.returncode == 0, said
    assert shop.points() == ["1"]
    assert not shop.recorders()


def test_a_worker_drains_however_often_it_is_asked(shop: Shop) -> None:
    """A service manager signals all processes at once, and the supervisor asks its workers, too: that is no second signal."""
    shop.publish({"order": "1", "does": "wait"})
    program = shop.start("run")
    wait_until(lambda: shop.ran("1"), "the handler")
    [worker] = shop.ran("1")
    os.kill(worker, signal.SIGTERM)
    while b"draining" not in read_some(program):
        pass
    os.killpg(program.pid, signal.SIGTERM)
    os.kill(worker, signal.SIGTERM)
    shop.write("go-on", "")
    said, _ = program.communicate(timeout=DEADLINE)
    assert program.returncode == 0, said
    assert shop.points() == ["1"]


def test_a_killed_worker_loses_nothing_and_doubles_nothing(shop: Shop) -> None:
    """SIGKILL in the middle of a unit: its messages run again in a new process, each takes effect once."""
    shop.publish(*orders(20), {"order": "500", "does": "kill-once"}, *orders(40))
    said = shop.finish("run", "--processes", "2", "--until-idle", "3s")
    assert shop.points() == [*(order["order"] for order in orders(40)), "500"]
    assert len(shop.ran("500")) == 2
    assert "killed by signal 9" in said
    assert not shop.dead()


def test_a_message_that_kills_ends_as_a_dead_letter(shop: Shop) -> None:
    """After exactly three dead processes it is buried as `crashed`; its neighbours are applied."""
    shop.publish(*orders(5), {"order": "500", "does": "kill"}, *orders(10))
    shop.finish("run", "--until-idle", "4s")
    assert shop.points() == [order["order"] for order in orders(10)]
    assert len(shop.ran("500")) == 3
    [dead] = shop.dead()
    assert dead["reason"] == "crashed"


def test_a_hard_limit_ends_the_process_and_charges_the_message(shop: Shop) -> None:
    """A handler that never returns costs its process; stacks are shown, a new one goes on, the message is buried."""
    shop.options("limits: {soft: 500ms, hard: 1s}")
    shop.publish({"order": "500", "does": "hang"}, *orders(5))
    said = shop.finish("run", "--until-idle", "4s")
    assert shop.points() == [order["order"] for order in orders(5)]
    assert len(shop.ran("500")) == 3
    [dead] = shop.dead()
    assert dead["reason"] == "hard-limit"
    assert dead["error"].endswith(": the handler ran longer than the hard limit of 1s 3 times")
    assert "in award" in said
    assert "hard time limit" in said


def test_a_second_signal_stops_at_once(shop: Shop) -> None:
    """The documented code, and the message that was running is not blamed for it: it runs again later."""
    shop.publish({"order": "1", "does": "wait"})
    program = shop.start("run")
    wait_until(lambda: shop.ran("1"), "the handler")
    program.send_signal(signal.SIGTERM)
    wait_until(lambda: b"draining" in read_some(program), "the drain")
    program.send_signal(signal.SIGTERM)
    program.wait(DEADLINE)
    assert program.returncode == 130
    assert not shop.recorders()
    assert shop.points() == []


def test_reload_takes_the_new_code(shop: Shop) -> None:
    """After an edit of the handler the workers run the edited one."""
    program = shop.start("run", "--reload")
    shop.publish({"order": "1", "does": "mark"})
    wait_until(lambda: shop.points() == ["1"], "the first order")
    shop.write("handlers.py", HANDLERS.replace('{"id": order["order"]}', '{"id": "new-" + order["order"]}'))
    wait_until(lambda: len(re_read(shop, "2")) == 1, "the edited handler")
    program.send_signal(signal.SIGTERM)
    program.communicate(timeout=DEADLINE)
    assert program.returncode == 0


def test_a_second_run_goes_on_where_the_first_ended(shop: Shop) -> None:
    """An app can be started again after it ended."""
    shop.publish(*orders(3))
    shop.finish("run", "--until-idle", "500ms")
    shop.publish(*orders(5))
    shop.finish("run", "--until-idle", "500ms")
    assert shop.points() == [order["order"] for order in orders(5)]


def test_missing_tables_are_one_clear_message(shop: Shop) -> None:
    """Without the ledger's tables nothing starts: one line says what to type, and the code is the documented one."""
    with closing(sqlite3.connect(shop.folder / "shop.db")) as database:
        database.execute("DROP TABLE oncemq_processed")
    program = shop.start("run")
    said, _ = program.communicate(timeout=DEADLINE)
    assert program.returncode == 5
    assert "oncemq tables" in said
    assert "Traceback" not in said


def read_some(program: subprocess.Popen[str]) -> bytes:
    """Return what the program has said, waiting for it to say something."""
    assert program.stdout is not None
    return os.read(program.stdout.fileno(), 65536)


def re_read(shop: Shop, order: str) -> list[str]:
    """Publish one more order and return those that the edited handler has seen."""
    shop.publish({"order": f"{order}-{time.monotonic_ns()}"})
    return [point for point in shop.points() if point.startswith("new-")][:1]
