"""Commands that a page shows were run: each of them, in the page's order, in an app with the names that the page uses.

What a test elsewhere runs, or nothing can run here, is listed with the test or the reason; a new command fails until it is one of both.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy import text as sql

from support.apps.command_line import run_program

ROOT = Path(__file__).parents[3]
_FILE = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^    (oncemq .*|python \w+\.py.*)$", re.MULTILINE)
_STEP = re.compile(
    _FILE.pattern.replace('"([^"]+)"', '"(?P<file>[^"]+)"').replace("(.*?)", "(?P<content>.*?)")
    + r"|^    (?P<command>(?:oncemq|python|rm|cd|pytest|export)\b(?:[^#\n]*[^#\s])?)",
    re.MULTILINE | re.DOTALL,
)
"""A file that a page shows, or a command."""
_ENDLESS = re.compile(r"oncemq (run|relay|top)\b(?!.*(--until-|--once))")
APP = """
app: shop
brokers: {local: {url: "embedded:///broker.db"}}
database: {url: "sqlite:///shop.db"}
schemas: {folder: schemas}
topics:
  order.paid: {key: body.order_id, identity: [body.order_id, body.payment_no], strategies: [unique_key]}
consumers:
  award: {topic: order.paid, handler: "handlers:award_points"}
  mail-receipt: {topic: order.paid, handler: "handlers:award_points", retry: {attempts: 1}}
"""
SCHEMA = '{"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}'
MESSAGES = '{"order_id": "order-42", "payment_no": 1, "user": "ann", "amount": 250}\n'
CODES = {"oncemq -f shop.app:app asyncapi": 3}
"""Codes other than 0 that the test's own app answers with: it has no module `shop.app`."""
PAGES = ("README.md", "docs/asyncapi.md", "docs/operations.md", "docs/run-again.md", "docs/schemas.md")
"""Pages whose lines of `oncemq` and `python` run here, one after the other."""
_WHEEL = "`make release-check` installs wheel and sdist, and runs what they bring"
_DOCKER = "needs Docker; `make deploy-check` reads the files"
_HELM = "needs a cluster; `make deploy-check` renders the chart, and validates what comes out"
_PROMETHEUS = "tests/unit/observe/test_grafana_example.py asks the tool of Prometheus, and compares with what an app exports"
ELSEWHERE = {
    ("CONTRIBUTING.md", "make "): "targets exist: the test below",
    ("README.md", "make "): "targets exist: the test below; .ci/run runs both",
    ("README.md", "pip install"): _WHEEL,
    ("README.md", "cd shop"): "the folder that the test makes",
    ("docs/dashboard.md", "pip install"): _WHEEL,
    (
        "docs/dashboard.md",
        "oncemq dashboard --new-user",
    ): "unit/cli/live/test_dashboard.py::test_a_new_users_line_is_printed",
    (
        "docs/dashboard.md",
        "oncemq dashboard --address",
    ): "unit/dashboard/test_access.py has users and proxies",
    (
        "docs/dashboard.md",
        "oncemq dashboard",
    ): "unit/cli/live/test_dashboard.py::test_it_serves_the_page_until_it_is_told_to_end",
    ("docs/frameworks/alembic.md", "oncemq tables alembic"): "unit/test_alembic.py has this line",
    (
        "docs/frameworks/alembic.md",
        "alembic upgrade heads",
    ): "unit/test_alembic.py does what it does, by Alembic's own function",
    ("docs/frameworks/fastapi.md", ""): "the test below",
    (
        "docs/frameworks/flask.md",
        "",
    ): "test_shown_parts.py::test_the_commands_of_the_flask_page_start_its_application",
    (
        "docs/rehearsals.md",
        "oncemq ",
    ): "unit/cli/live/test_record.py::test_a_running_app_is_recorded_and_the_file_rehearsed",
    ("docs/metrics.md", "pip install"): _WHEEL,
    (
        "docs/metrics.md",
        "OTEL_METRICS_EXPORTER",
    ): "unit/observe/test_metrics_export.py, with a collector of its own",
    (
        "docs/migrations/between-strategies.md",
        "oncemq tables move",
    ): "scenarios/test_changes_of_strategy.py and unit/strategies/state_machine/test_states_move.py have states to move",
    ("docs/reload.md", "kill -HUP"): "scenarios/recycling/test_reload.py sends the signal",
    (
        "docs/reload.md",
        "oncemq reload",
    ): "scenarios/recycling/test_reload_of_all.py has processes that answer",
    ("docs/reload.md", "oncemq config"): "unit/cli/test_config_commands.py has a history",
    (
        "docs/rocketmq.md",
        "mqadmin createAcl",
    ): "RocketMQ's own tool; suites/rocketmq run with accounts of these rights",
    ("docs/tracing.md", "pip install"): _WHEEL,
    ("docs/tutorial.md", "python3 -m venv"): _WHEEL,
    ("docs/tutorial.md", ". .venv/bin/activate"): "a shell of the user; see the line before",
    ("docs/tutorial.md", "pip install"): _WHEEL,
    ("examples/compose/README.md", ""): _DOCKER,
    ("examples/grafana/README.md", "prom"): _PROMETHEUS,
    (
        "examples/grafana/README.md",
        "printf",
    ): "unit/observe/test_grafana_example.py runs an app with such a setting",
    (
        "examples/grafana/README.md",
        "oncemq -f",
    ): "unit/observe/test_grafana_example.py runs an app with such a setting",
    ("examples/grafana/README.md", "curl"): _PROMETHEUS,
    ("examples/kubernetes/README.md", ""): _HELM,
}
"""By page and first words: where a command runs, or why it cannot."""


def _commands(page: str) -> list[str]:
    """Return the lines of a page's indented blocks, comments taken off; those of one line are apart."""
    lines = (line.partition("  #")[0].strip() for line in _LINE.findall((ROOT / page).read_text()))
    return [part.strip() for line in lines for part in line.split("&&") if not part.strip().startswith("cd ")]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an app that has handled one message."""
    monkeypatch.chdir(tmp_path)
    assert run_program("init", "shop").exit_code == 0
    folder = tmp_path / "shop"
    monkeypatch.chdir(folder)
    (folder / "app.yaml").write_text(APP)
    (folder / "messages.jsonl").write_text(MESSAGES)
    (folder / "schemas").mkdir()
    (folder / "schemas" / "order.paid.v1.json").write_text(SCHEMA)
    _run("python handlers.py")
    for command in (
        "oncemq tables create",
        "oncemq publish order.paid messages.jsonl",
        "oncemq run --until-idle 1s",
    ):
        assert _run(command) == 0
    return folder


def _run(command: str) -> int:
    words = shlex.split(re.sub(r"(--until-idle) \S+", r"\1 0.3s", command))
    if words[0] == "python":
        return subprocess.run(
            [sys.executable, *words[1:]], capture_output=True, check=False, timeout=120
        ).returncode
    if words[0] == "pytest":
        return subprocess.run([sys.executable, "-m", "pytest", "-q"], check=False, timeout=120).returncode
    if words[0] == "rm":
        for name in words[1:]:
            Path(name).unlink()
        return 0
    if _ENDLESS.match(command):
        words += {"top": ["--once"], "run": ["--until-idle", "1s"], "relay": ["--until-empty"]}[words[1]]
    done = run_program(*words[1:], stdin="y\n")
    print(command, done.exit_code, done.output)  # noqa: T201 - shown where the test fails
    return done.exit_code


def _shown(page: Path) -> Iterator[str]:
    """Yield the lines of a page's indented blocks, each command of a line apart, without what is in fences and in lists."""
    before, within = "", False
    for line in _FENCED.sub("", page.read_text()).splitlines():
        within = line.startswith("    ") and (within or not before)
        if within:
            yield from (part.strip() for part in line.partition("  #")[0].split(" && "))
        before = line


def test_every_command_is_run_or_listed() -> None:
    """A new command of a page needs a test, or the reason why it has none; one that went is noticed.

    READMEs of examples with a prompt before each command are run to the letter by scenarios/test_examples.py.
    """
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/README.md")]
    found = [
        (page.relative_to(ROOT).as_posix(), command)
        for page in pages
        if "docs/zh/" not in page.as_posix() and page.name not in {"README.zh-CN.md", "CHANGELOG.md"}
        if "\n    $ " not in page.read_text()
        for command in _shown(page)
    ]
    run = [(page, command) for page in PAGES for command in _commands(page)]
    text = (ROOT / "docs/tutorial.md").read_text()
    run += [("docs/tutorial.md", step["command"]) for step in _STEP.finditer(text) if step["command"]]
    used = {
        entry: [
            pair for pair in found if pair not in run and pair[0] == entry[0] and pair[1].startswith(entry[1])
        ]
        for entry in ELSEWHERE
    }
    listed = [pair for pairs in used.values() for pair in pairs]
    assert [pair for pair in found if pair not in run and pair not in listed] == []
    assert [entry for entry, pairs in used.items() if not pairs] == []
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {command.split()[1] for _, command in listed if command.startswith("make ")} <= set(targets)


@contextmanager
def _serving(command: list[str]) -> Iterator[str]:
    """Run a web server on a free port, and yield its address once it says it."""
    with subprocess.Popen([*command, "--port", "0"], stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            yield next(found[0] for line in server.stderr if (found := re.search(r"http://[\d.]+:\d+", line)))
        finally:
            server.terminate()


def test_the_commands_of_the_fastapi_page_were_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the files that it shows: the same request twice gets one answer, and the consumer gives one point."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ".")
    page = (ROOT / "docs/frameworks/fastapi.md").read_text()
    for name, content in _FILE.findall(page):
        Path(name).write_text(content)
    tables, program, serve, consume, request = _shown(ROOT / "docs/frameworks/fastapi.md")
    assert (_run(tables), _run(program)) == (0, 0)
    with _serving([sys.executable, "-m", *shlex.split(serve)]) as address:
        words = shlex.split(request.replace("http://127.0.0.1:8000", address))
        answers = [subprocess.run(words, capture_output=True, text=True, check=True).stdout for _ in "12"]
    assert [answer.split()[1] for answer in answers] == ["201", "201"]
    assert answers[0].splitlines()[-1] == answers[1].splitlines()[-1]
    assert _run(consume) == 0
    (url,) = re.findall(r'database: \{url: "(.*?)"', Path("app.yaml").read_text())
    with create_engine(re.sub(r"\$\{\w+:-(.*)\}", r"\1", url)).connect() as connection:
        counts = [connection.scalar(sql(f"SELECT count(*) FROM {table}")) for table in ("payments", "points")]
    assert counts == [1, 1]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_were_run(page: str, shop: Path) -> None:
    """Each ends with code 0; those that would run on are told to end."""
    commands = _commands(page)
    assert len(commands) > 3
    assert {command: code for command in commands if (code := _run(command)) != CODES.get(command, 0)} == {}


def test_the_commands_of_the_tutorial_were_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rabbitmq_url: str,
    postgresql_database: str,
    fresh: str,
) -> None:
    """In the page's order, with the files that it shows where it shows them, at last on RabbitMQ and PostgreSQL; the messages that `init` has written give points."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/tutorial.md").read_text().replace("order.paid", fresh)
    steps = list(_STEP.finditer(text))
    # On the page it runs in another terminal meanwhile.
    (consuming,) = (at for at, step in enumerate(steps) if step["command"] == "oncemq run --processes 2")
    steps.insert(consuming + 1, steps.pop(consuming))
    for step in steps:
        if step["file"]:
            Path(step["file"]).write_text(step["content"])
        elif step["command"].startswith("cd "):
            monkeypatch.chdir(tmp_path / step["command"].removeprefix("cd "))
        elif step["command"].startswith("export "):
            monkeypatch.setenv("BROKER", rabbitmq_url)
            monkeypatch.setenv("DATABASE", postgresql_database)
        else:
            assert (step["command"], _run(step["command"])) == (step["command"], 0)
    with create_engine(postgresql_database).connect() as connection:
        assert connection.execute(sql("SELECT sum(points) FROM points")).scalar_one() == 24
