"""A command of a warm program is the command of a real one."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from support.apps.program import Program, Started, eventually
from support.apps.warm import Command, WarmProgram
from support.forking import TESTS, Forks

APP = "app: shop\nbrokers: {main: {url: 'embedded:///broker.db'}}\ntopics: {orders: {key: body.id, strategies: [none]}}\n"


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (("--version",), None),
        (("rnu",), None),
        (("-f", "nowhere.yaml", "check"), None),
        (("publish", "orders"), '{"id": 1}\n{"id": 2}\n'),
    ],
    ids=["a version", "a wrong command", "a missing file", "standard input"],
)
def test_a_warm_command_is_a_real_one(tmp_path: Path, arguments: tuple[str, ...], stdin: str | None) -> None:
    """It reads what it is given, prints the same and ends with the same code, in the folder and with the variables of the test."""
    (tmp_path / "app.yaml").write_text(APP)
    done = [program(tmp_path).call(*arguments, stdin=stdin) for program in (Program, WarmProgram)]
    said = [(result.returncode, result.stdout, result.stderr) for result in done]
    assert said[1] == said[0]


@pytest.mark.parametrize("kind", [Program, WarmProgram])
def test_a_started_command_drains_and_dies_as_a_real_one(tmp_path: Path, kind: type[Program]) -> None:
    """Its output goes to the log, SIGTERM ends it in order, and leaving the block ends its workers, too."""
    (tmp_path / "handlers.py").write_text(
        "def handle(order: dict) -> None:\n    print(order['id'], flush=True)\n"
    )
    (tmp_path / "app.yaml").write_text(
        f"{APP}consumers: {{print: {{topic: orders, handler: 'handlers:handle'}}}}\n"
    )
    program = kind(tmp_path)
    program.call("publish", "orders", stdin='{"id": "first one"}\n')
    with program.started("run", "--processes", "2") as running:
        eventually(lambda: "first one" in running.said(), "the handler's word", said=running.said)
        eventually(lambda: running.said().count("consumer started") == 2, "both workers", said=running.said)
        assert running.running
        assert running.drain() == 0
    assert running.said().count('"stopped"') == 2
    with program.started("run", "--processes", "2") as running:
        eventually(lambda: running.said().count("consumer started") == 4, "a start", said=running.said)
    eventually(lambda: is_gone(running), "the end of all of its processes")


TESTS_THAT_ARE_KILLED = """
import sys, time
from pathlib import Path
from support.apps.warm import WarmProgram

with WarmProgram(Path(sys.argv[1])).started("run", "--processes", "2") as running:
    print(running.pid, flush=True)
    sys.stdin.read()
"""


def test_a_warm_command_ends_with_the_tests(tmp_path: Path) -> None:
    """When the tests and what forks for them are killed together, a supervisor that they started ends with its workers."""
    (tmp_path / "handlers.py").write_text("def handle(order: dict) -> None: ...\n")
    (tmp_path / "app.yaml").write_text(
        f"{APP}consumers: {{print: {{topic: orders, handler: 'handlers:handle'}}}}\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", TESTS_THAT_ARE_KILLED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as tests:
        assert tests.stdout is not None
        supervisor = int(tests.stdout.readline())
        log = tmp_path / "program.log"
        try:
            eventually(lambda: log.read_text().count("consumer started") == 2, "a start", said=log.read_text)
        finally:
            os.killpg(tests.pid, signal.SIGKILL)
    try:
        eventually(lambda: no_process_in(supervisor), "the end of all of its processes", 15)
    finally:
        if not no_process_in(supervisor):
            os.killpg(supervisor, signal.SIGKILL)


def test_a_command_may_have_the_number_of_a_former_one(tmp_path: Path) -> None:
    """Systems give the number of an ended process to a new one, after tens of thousands of others; its end is waited for all the same."""
    forks = Forks("support.apps.warm", tmp_path / "commands.log", os.environ)
    with forks:
        forks.ended.update(dict.fromkeys(range(os.getpid(), os.getpid() + 10_000), 17))
        command = Command(("--version",), str(tmp_path), dict(os.environ), (os.devnull,) * 3)
        assert forks.fork(json.dumps(asdict(command))).wait() == 0


def is_gone(running: Started) -> bool:
    """Whether no process of its group is left."""
    return no_process_in(running.pid)


def no_process_in(group: int) -> bool:
    """Whether no process of the group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False
