"""`oncemq doctor` and `oncemq completion`: what a report of a problem contains, and what a shell completes."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from oncemq.cli.entry import main
from oncemq.cli.main import COMMANDS
from support.apps.command_line import run_program

_APP = """
app: shop
brokers:
  main: {{url: "{broker}"}}
database: {{url: "{database}"}}
redis: {{url: "{redis}"}}
topics:
  order.paid: {{key: body.order_id, strategies: [unique_key]}}
consumers:
  award: {{topic: order.paid, handler: "handlers:award"}}
"""


def test_it_works_without_an_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions of Python, OnceMQ and its packages are there in any case."""
    monkeypatch.chdir(tmp_path)
    shown = run_program("doctor")
    assert shown.exit_code == 0
    assert "sqlalchemy 2." in shown.stdout
    assert "no app.yaml here" in shown.stdout


def test_it_tells_servers_and_no_secrets(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rabbitmq_url: str,
    postgresql_database: str,
    redis_url: str,
) -> None:
    """Versions and settings of broker, database and Redis are printed; passwords and addresses are not."""
    monkeypatch.chdir(tmp_path)
    urls = {"broker": rabbitmq_url, "database": postgresql_database, "redis": redis_url}
    (tmp_path / "app.yaml").write_text(_APP.format(**urls))
    (tmp_path / "handlers.py").write_text("def award(order: dict) -> None: ...\n")
    shown = run_program("doctor").stdout
    for wanted in (
        "broker main: RabbitMQAdapter, RabbitMQ 3.",
        "database: postgresql 1",
        "synchronous_commit on",
    ):
        assert wanted in shown
    assert "maxmemory-policy" in shown
    assert "consumer award: UniqueKey, effects database" in shown
    for url in urls.values():
        parts = urlsplit(url)
        assert f":{parts.port}" not in shown
        assert not parts.password or parts.password not in shown


def test_a_server_that_is_away_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is printed all the same."""
    monkeypatch.chdir(tmp_path)
    urls = {
        "broker": "amqp://127.0.0.1:1/",
        "database": "postgresql://127.0.0.1:1/x",
        "redis": "redis://127.0.0.1:1/0",
    }
    (tmp_path / "app.yaml").write_text(_APP.format(**urls))
    (tmp_path / "handlers.py").write_text("def award(order: dict) -> None: ...\n")
    shown = run_program("doctor")
    assert shown.exit_code == 0
    assert shown.stdout.count("not reached") == 3


def test_an_app_with_errors_is_told_without_its_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each error has a line of its own, and the URLs that it names are cut."""
    monkeypatch.chdir(tmp_path)
    urls = {
        "broker": "amqp://ada:secret@rabbit.example:x/",
        "database": "mysql+mysqldb://ada:secret@database.example/shop",
        "redis": "redis://redis.example/0",
    }
    (tmp_path / "app.yaml").write_text(_APP.format(**urls))
    shown = run_program("doctor")
    assert shown.exit_code == 0
    told = shown.stdout.partition("has errors, see `oncemq check`:\n")[2].splitlines()
    assert len(told) > 1
    assert all("app.yaml:" in line for line in told)
    assert not any(word in shown.stdout for word in (".example", "secret", "ada"))


def test_a_package_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of several extras has one line, and extras that are missing name their packages."""
    monkeypatch.chdir(tmp_path)
    packages = run_program("doctor").stdout.partition("packages:\n")[2].partition("app:\n")[0].splitlines()
    assert len({line.split()[0] for line in packages if "not installed" not in line}) == len(
        [line for line in packages if "not installed" not in line]
    )
    assert "  not installed: redis-py-cluster (oncemq[redis-py-cluster])" in packages


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(shell: str) -> None:
    """It calls the program back under the name that click expects."""
    assert "_ONCEMQ_COMPLETE" in run_program("completion", shell).stdout


def test_commands_are_completed() -> None:
    """A shell that asks gets the names that begin so."""
    asked = {"_ONCEMQ_COMPLETE": "bash_complete", "COMP_WORDS": "oncemq dead", "COMP_CWORD": "1"}
    program = "from oncemq.cli.main import main; main()"
    answer = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | asked, capture_output=True, text=True, check=False
    )
    assert answer.stdout.split() == ["plain,dead-letters"]
    assert "dead-letters" in COMMANDS


def test_windows_gets_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is imported that is not there."""
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit, match="use WSL 2 or a container"):
        main()


def test_a_library_without_file_locks_gets_one_sentence() -> None:
    """Where `fcntl` is missing, an import says what to do instead of naming a module of the system."""
    program = "import sys; sys.modules['fcntl'] = None; import oncemq; oncemq.App"
    failed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "use WSL 2 or a container" in failed.stderr.splitlines()[-1]


_ROUTES = """
app: shop
brokers: {main: {url: "embedded://memory"}}
database: {url: "sqlite:///shop.db"}
topics:
  orders: {key: body.id, identity: message_id, strategies: [unique_key]}
consumers:
  events:
    topic: orders
    retry: {attempts: 3}
    routes:
      by: body.type
      order.paid: "route_handlers:note"
      order.cancelled:
        handler: "route_handlers:note"
        strategies: [redis_lock: {name: "lock:{key}"}, unique_key]
        retry: {never: [ValueError]}
      stock.moved: {handler: "route_handlers:note", key: body.sku, version: body.n, identity: [body.sku, body.n], retry: {attempts: 1}}
      order.sent: {handler: "route_handlers:note", schema: "route_handlers:Order", retry: {attempts: 3}}
redis: {url: "redis://127.0.0.1:1"}
"""


@pytest.mark.parametrize("command", ["check", "doctor"])
def test_what_differs_by_route_is_told(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strategies, retry, key, version, identity and schema in a line for each route that has some, and nothing of the others."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.yaml").write_text(_ROUTES)
    text = "from pydantic import BaseModel\nclass Order(BaseModel): ...\ndef note(order: dict) -> None: ...\n"
    (tmp_path / "route_handlers.py").write_text(text)
    shown = run_program(command).stdout
    assert [line.strip() for line in shown.splitlines() if line.strip().startswith("route ")] == [
        "route order.cancelled: redis_lock (name) + unique_key, 3 attempts within 6s, ValueError 1 attempt",
        "route stock.moved: 1 attempt, key body.sku, version body.n, identity body.sku, body.n",
        "route order.sent: schema route_handlers:Order",
    ]
