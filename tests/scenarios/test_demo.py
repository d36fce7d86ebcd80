"""`oncemq demo` keeps the promise in front of everyone: from a checkout, on servers, and from a wheel."""

import json
import subprocess
import sys
import venv
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from support.apps.program import Program
from support.apps.warm import WarmProgram
from support.patience import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]


def played(program: Program, *arguments: str) -> dict[str, Any]:
    """Run the demo and return what it says."""
    return json.loads(program.succeed("demo", "--json", *arguments, timeout=180))


def expect_kept(result: dict[str, Any]) -> None:
    """Fail unless everything counted once although a worker was killed."""
    assert {name: result[name] for name in ("lost", "double", "backwards", "dead")} == {
        "lost": 0,
        "double": 0,
        "backwards": 0,
        "dead": 0,
    }
    assert result["holds"] is True
    assert result["killed"] is not None
    assert result["duplicates"] > 0
    assert result["stale"] > 0
    assert result["delivered"] >= result["published"]


def test_the_demo_needs_no_server_and_less_than_a_minute(tmp_path: Path) -> None:
    """On files alone a worker is killed and every event still counts once."""
    began = monotonic()
    expect_kept(played(Program(tmp_path)))
    assert monotonic() - began < 60 * PATIENCE


def test_the_demo_runs_on_servers(tmp_path: Path, rabbitmq_url: str, postgresql_database: str) -> None:
    """The same app with two URLs: RabbitMQ and PostgreSQL."""
    expect_kept(played(Program(tmp_path), "--broker", rabbitmq_url, "--database", postgresql_database))


def test_the_demo_runs_on_kafka(tmp_path: Path, kafka_url: str) -> None:
    """Every event counts once where a killed worker's partitions go to another one."""
    expect_kept(played(Program(tmp_path), "--broker", kafka_url))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ("--broker", "foo://x"),
            3,
            "unknown broker scheme 'foo' (known: amqp, amqps, embedded, kafka, rocketmq, rocketmq+grpc, rocketmq+native)",
        ),
        (("--broker", "amqp://127.0.0.1:1/"), 4, "cannot reach RabbitMQ at 127.0.0.1:1"),
        (("--database", "postgresql://u:hush@127.0.0.1:1/x"), 5, "does not answer: is the server running"),
        (("--orders", "missing.csv"), 2, "'missing.csv' does not exist"),
    ],
)
def test_a_demo_that_cannot_run_says_why(
    tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """One message, the documented exit code, no traceback and no password."""
    done = WarmProgram(tmp_path).call("demo", *arguments)
    assert done.returncode == code
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert "hush" not in done.stderr


def test_the_wheel_plays_the_demo_in_an_environment_of_its_own(tmp_path: Path) -> None:
    """What is installed from the wheel is complete: program, adapters, strategies and the example."""
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "dist", ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True, capture_output=True)
    program = Program(tmp_path, python=str(python))
    expect_kept(played(program, "--rounds", "2"))
    where = program.python("-c", "import oncemq; print(oncemq.__file__)").stdout
    assert str(tmp_path) in where
