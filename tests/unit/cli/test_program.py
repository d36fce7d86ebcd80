"""The program as a person calls it: exit codes, one clear message, no traceback."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.apps.warm import WarmProgram

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "oncemq"]


def oncemq(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program in `folder`."""
    return WarmProgram(folder, environment).call(*arguments)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project as `init` writes it."""
    assert oncemq(tmp_path, "init", "shop").returncode == 0
    return tmp_path / "shop"


def test_help_lists_every_command_and_exit_code(tmp_path):
    """Help is where people look first."""
    said = oncemq(tmp_path, "--help")
    assert said.returncode == 0
    for word in (
        "init",
        "check",
        "run",
        "tables",
        "schema",
        "publish",
        "dead-letters",
        "outbox",
        "inspect",
        "Exit codes",
    ):
        assert word in said.stdout


def test_help_imports_no_engine(tmp_path):
    """`--help` answers at once because it loads no command."""
    code = "import sys\nfrom oncemq.cli.main import _run\n_run(['--help'])\nprint([m for m in ('sqlalchemy', 'pydantic', 'yaml') if m in sys.modules])"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert said.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "command",
    [
        "init",
        "check",
        "run",
        "tables",
        "tables create",
        "tables drop",
        "tables sql",
        "tables upgrade",
        "schema",
        "publish",
        "dead-letters",
        "outbox list",
        "outbox drop",
        "inspect",
        "demo",
    ],
)
def test_every_command_explains_itself(tmp_path, command):
    """Each command can be imported and has a help."""
    said = oncemq(tmp_path, *command.split(), "--help")
    assert (said.returncode, said.stderr) == (0, "")


def test_an_unknown_command_is_answered_with_the_nearest(tmp_path):
    """A typing error costs one line."""
    said = oncemq(tmp_path, "chekc")
    assert said.returncode == 2
    assert "there is no command 'chekc'; did you mean 'check'?" in said.stderr


def test_a_missing_file_is_one_line(tmp_path):
    """Without app.yaml there is nothing to check."""
    said = oncemq(tmp_path, "check")
    assert said.returncode == 3
    assert said.stderr.splitlines() == [
        "error: app.yaml: there is no such file – name yours with -f, or let `oncemq init` write one",
        "1 problem; nothing was started (exit code 3)",
    ]


def test_what_init_prints_really_works(tmp_path):
    """Every command that `init` names is run, and three of five messages take effect."""
    printed = oncemq(tmp_path, "init", "shop").stdout
    commands = [line.strip() for line in printed.partition("Next, run:\n")[2].splitlines()]
    assert commands.pop(0) == "cd shop"
    said = ""
    for command in commands:
        program, *arguments = command.split()
        start = COMMAND if program == "oncemq" else [sys.executable]
        done = subprocess.run(
            [*start, *arguments],
            cwd=tmp_path / "shop",
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        said = done.stdout
    assert said.splitlines()[-1] == "3 rows, 24 points"


def test_init_names_the_packages_that_its_servers_need(tmp_path):
    """The commands that `init` prints begin with what a plain installation lacks."""
    printed = oncemq(tmp_path, "init", "shop", "--broker", "rabbitmq", "--database", "postgresql").stdout
    commands = [line.strip() for line in printed.partition("Next, run:\n")[2].splitlines()]
    assert commands[:3] == [
        "cd shop",
        "pip install 'oncemq[rabbitmq,postgres]'",
        "docker compose up --wait",
    ]


def test_init_overwrites_nothing(project):
    """A second init leaves the first one's files alone."""
    before = (project / "app.yaml").read_text()
    (project / "handlers.py").unlink()
    said = oncemq(project.parent, "init", "shop")
    assert (said.returncode, (project / "handlers.py").exists()) == (1, False)
    assert "shop/app.yaml" in said.stderr
    assert (project / "app.yaml").read_text() == before


def test_check_says_what_will_run(project):
    """A good app is one line for each consumer."""
    said = oncemq(project, "check")
    assert (said.returncode, said.stdout.splitlines()) == (
        0,
        [
            (
                "award-points: local/order.paid as shop-award-points → handlers:award_points "
                "(database, unique_key, 6 attempts within 6.82m)"
            ),
            "shop may run",
        ],
    )


def test_check_as_json_holds_positions(project):
    """Scripts get file, line and column."""
    (project / "prod.yaml").write_text("consumers:\n  award-points: {topic: order.piad}\n")
    said = oncemq(project, "-f", "app.yaml", "-f", "prod.yaml", "check", "--json")
    found = json.loads(said.stdout)
    assert (said.returncode, found["ok"]) == (3, False)
    assert [(error["file"], error["line"], error["column"]) for error in found["errors"]] == [
        ("prod.yaml", 2, 25)
    ]


def test_check_connect_finds_missing_tables(project):
    """Before `tables create` the ledger is missing, after it all is there."""
    missing = oncemq(project, "check", "--connect")
    assert (missing.returncode, "oncemq tables create" in missing.stderr) == (5, True)
    assert oncemq(project, "tables", "create").returncode == 0
    assert oncemq(project, "check", "--connect").returncode == 0


def test_run_without_tables_says_what_to_type(project):
    """A missing ledger is one message with its exit code, and no worker is started again and again."""
    said = oncemq(project, "run", "--until-idle", "1s")
    assert said.returncode == 5
    assert "run `oncemq tables create`" in said.stderr
    assert "Traceback" not in said.stderr


def test_check_connect_tells_a_refused_connection(project):
    """A broker that is not there is one line with its own exit code."""
    (project / "there.yaml").write_text(
        'brokers: {local: {url: "amqp://guest:c4n4ry-s3cret@127.0.0.1:1/"}}\n'
    )
    said = oncemq(project, "-f", "app.yaml", "-f", "there.yaml", "check", "--connect")
    assert said.returncode == 4
    assert "127.0.0.1:1" in said.stderr
    assert "Traceback" not in said.stderr
    assert "c4n4ry" not in said.stderr + said.stdout


def test_tables_sql_connects_to_nothing(project):
    """DDL is printed for people who run it themselves."""
    said = oncemq(project, "tables", "sql")
    assert said.returncode == 0
    assert "CREATE TABLE oncemq_processed" in said.stdout
    assert not (project / "shop.db").exists()


def test_tables_drop_asks(project):
    """Without --yes and without a terminal nothing is dropped, and the answer names the option."""
    oncemq(project, "tables", "create")
    refused = oncemq(project, "tables", "drop")
    assert (refused.returncode, "--yes" in refused.stderr) == (2, True)
    assert oncemq(project, "check", "--connect").returncode == 0
    assert oncemq(project, "tables", "drop", "--yes").returncode == 0
    assert oncemq(project, "check", "--connect").returncode == 5


def test_schema_is_json(tmp_path):
    """The schema can be sent to a file."""
    assert json.loads(oncemq(tmp_path, "schema").stdout)["title"] == "OnceMQ app"


def test_until_idle_wants_a_unit(project):
    """A bare number is refused with the form that is meant."""
    said = oncemq(project, "run", "--until-idle", "5")
    assert said.returncode == 2
    assert "write a number and a unit" in said.stderr


def test_a_closed_pipe_is_no_traceback(tmp_path):
    """`oncemq schema | head -1` ends quietly."""
    said = subprocess.run(
        f"{sys.executable} -m oncemq schema | head -c 10",
        shell=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert said.stderr == ""


def test_sigterm_drains_with_exit_code_zero(project):
    """A process manager's stop is a good end."""
    oncemq(project, "tables", "create")
    process = subprocess.Popen([*COMMAND, "run"], cwd=project, stderr=subprocess.PIPE, text=True)
    lines = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not any("consumer started" in line for line in lines):
        lines.append(process.stderr.readline())
    process.send_signal(signal.SIGTERM)
    _out, rest = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in rest
