"""Log lines never make a thread wait: what a slow reader has no room for is lost, and counted."""

import fcntl
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from oncemq.observe.log_output import LogOutput

APP = """
app: shop
brokers: {{local: {{url: "embedded:///{folder}/broker.db"}}}}
database: {{url: "sqlite:///{folder}/shop.db"}}
topics: {{order.paid: {{key: body.order, strategies: [unique_key]}}}}
consumers: {{award: {{topic: order.paid, handler: "handlers:award"}}}}
"""
HANDLERS = """
import logging
from sqlalchemy import text
from sqlalchemy.orm import Session

def award(order: dict, session: Session) -> None:
    session.execute(text("INSERT INTO points (order_id) VALUES (:id)"), {"id": order["order"]})
    for number in range(200):
        logging.getLogger("shop").warning("%d %s", number, "x" * 1000)
"""


class Pipe:
    """A pipe whose reader does nothing until it is asked."""

    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        self.stream = os.fdopen(writer, "w")
        self.output = LogOutput(self.stream)

    def fill(self) -> int:
        """Write lines until one is lost; returns how many were written."""
        written = 0
        while not self.output.lost:
            self.output.write(f"{'x' * 999}\n")
            written += 1
        return written - 1

    def read(self) -> str:
        """Return what is in the pipe."""
        return os.read(self.reader, 1_000_000).decode()

    def close(self) -> None:
        """Close both ends."""
        os.close(self.reader)
        self.stream.close()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A pipe with nothing in it."""
    pipe = Pipe()
    yield pipe
    pipe.close()


def test_a_pipe_that_nothing_reads_blocks_no_thread(pipe: Pipe) -> None:
    """Lines are lost long before a write would have to wait, since other processes use the pipe, too."""
    assert 40 < pipe.fill() < 50


def test_lost_lines_are_counted(pipe: Pipe) -> None:
    """Once the reader goes on, the first line says how many it missed."""
    pipe.fill()
    for _ in range(9):
        pipe.output.write(f"{'x' * 999}\n")
    pipe.read()
    pipe.output.write("seen\n")
    assert pipe.read() == "10 log lines are lost: their reader was too slow\nseen\n"


def test_a_line_longer_than_the_pipe_is_cut(pipe: Pipe) -> None:
    """Its beginning says more than nothing."""
    pipe.output.write(f"{'é' * 100_000}\n")
    said = pipe.read()
    assert said.startswith("éé")
    assert said.endswith("… (cut: longer than the pipe)\n")


def test_a_small_pipe_takes_lines(pipe: Pipe) -> None:
    """The system gives small ones to a user who has many."""
    fcntl.fcntl(pipe.reader, fcntl.F_SETPIPE_SZ, 4096)
    pipe.output.write("seen\n")
    assert pipe.read() == "seen\n"


def test_no_stream_is_no_error() -> None:
    """A daemon may have been started without one."""
    LogOutput(None).write("x\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a message whose handler logs more than a pipe holds."""
    (tmp_path / "app.yaml").write_text(APP.format(folder=tmp_path))
    (tmp_path / "handlers.py").write_text(HANDLERS)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE points (order_id TEXT)")
    for arguments, lines in ((("tables", "create"), ""), (("publish", "order.paid"), '{"order": "1"}\n')):
        command = [sys.executable, "-m", "oncemq", *arguments]
        subprocess.run(command, cwd=tmp_path, input=lines, text=True, capture_output=True, check=True)
    return tmp_path


@pytest.mark.parametrize("stderr", ["never-read", "closed"])
def test_an_app_works_and_ends_whatever_becomes_of_its_log(folder: Path, stderr: str) -> None:
    """A log pipe that nothing reads, or no stderr at all: the message is applied, and the exit code is true."""
    program = [sys.executable, "-m", "oncemq", "run", "--until-idle", "100ms"]
    if stderr == "closed":
        done = subprocess.run(
            ["sh", "-c", 'exec "$@" 2>&-', "sh", *program], cwd=folder, timeout=60, check=False
        )
        assert done.returncode == 0
    else:
        with subprocess.Popen(program, cwd=folder, stderr=subprocess.PIPE) as running:
            assert running.wait(timeout=60) == 0
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        assert database.execute("SELECT COUNT(*) FROM points").fetchone() == (1,)
