"""Commands that a page shows were run: each of them, in the page's order, in an app with the names that the page uses."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy import text as sql

from support.apps.command_line import run_program

ROOT = Path(__file__).parents[3]
_FILE = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^    (oncemq .*|python \w+\.py.*)$", re.MULTILINE)
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
    if _ENDLESS.match(command):
        words += {"top": ["--once"], "run": ["--until-idle", "1s"], "relay": ["--until-empty"]}[words[1]]
    done = run_program(*words[1:], stdin="y\n")
    print(command, done.exit_code, done.output)  # noqa: T201 - shown where the test fails
    return done.exit_code


@pytest.mark.parametrize(
    "page", ["README.md", "docs/asyncapi.md", "docs/operations.md", "docs/run-again.md", "docs/schemas.md"]
)
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
    """With the files that it shows, on RabbitMQ and PostgreSQL; the messages that `init` has written give points."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BROKER", rabbitmq_url)
    monkeypatch.setenv("DATABASE", postgresql_database)
    text = (ROOT / "docs/tutorial.md").read_text().replace("order.paid", fresh)
    commands = [
        part for line in _LINE.findall(text) for part in line.partition("  #")[0].strip().split(" && ")
    ]
    assert _run(commands.pop(0)) == 0
    monkeypatch.chdir(tmp_path / "shop")
    for name, content in _FILE.findall(text):
        Path(name).write_text(content)
    # On the page it runs in another terminal meanwhile.
    consuming = commands.index("oncemq run --processes 2")
    commands.insert(consuming + 1, commands.pop(consuming))
    assert {command: code for command in commands if (code := _run(command))} == {}
    with create_engine(postgresql_database).connect() as connection:
        assert connection.execute(sql("SELECT sum(points) FROM points")).scalar_one() == 24
