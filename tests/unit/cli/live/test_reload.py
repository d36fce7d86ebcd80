"""The command `reload` where no process of `oncemq run` answers."""

import json
from pathlib import Path

import pytest
from sqlalchemy import text

from oncemq import App
from oncemq.ledger.coordination import reloads
from oncemq.ledger.database.engine import make_engine
from oncemq.operate.configuration.history import History, Member, Occasion
from support.apps.command_line import run_program

APP = """
app: shop
brokers: {main: {url: "embedded:///broker.db"}}
database: {url: "sqlite:///shop.db"}
topics: {orders: {key: body.id, identity: body.id, strategies: [unique_key]}}
consumers:
  pay: {topic: orders, handler: "handlers:pay"}
"""


@pytest.fixture(autouse=True)
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    """An app with its tables in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("app.yaml").write_text(APP)
    Path("handlers.py").write_text("def pay(order: dict) -> None:\n    pass\n")
    made = App.from_yaml()
    made.create_tables()
    return made


def _known(name: str, age: str | None = None) -> None:
    engine = make_engine("sqlite:///shop.db")
    with engine.begin() as connection:
        reloads.sign_on(connection, "shop", name, name, 7, "v1")
        if age is not None:
            connection.execute(
                text("UPDATE oncemq_supervisors SET seen_at = datetime('now', :ago)"), {"ago": age}
            )
    engine.dispose()


def test_without_a_process_it_says_so() -> None:
    """Nothing has been reloaded."""
    done = run_program("reload")
    assert done.exit_code == 1
    assert "does the app run?" in done.stderr


def test_one_that_does_not_answer_is_named() -> None:
    """The silent one at once, the other one after the time that was given; the request stays."""
    _known("web-1", "-2 minutes")
    done = run_program("reload", "--json")
    assert (done.exit_code, json.loads(done.stdout)["outcome"]) == (1, "silent")
    _known("web-2")
    done = run_program("reload", "--within", "100ms", "--by", "alice")
    assert done.exit_code == 1
    assert "web-1 (pid 7) was not seen for a minute" in done.stdout
    assert "web-2 (pid 7) has not answered yet" in done.stdout
    assert "not all have answered: no answer has come for 100ms" in done.stderr
    (latest, _) = map(json.loads, run_program("audit", "--json").stdout.splitlines())
    assert (latest["action"], latest["who"]) == ("reload", "alice")


def test_processes_without_a_supervisor_are_named(app: App) -> None:
    """Nothing replaces the process of `App.start()`."""
    _known("web-1")
    app.start()
    try:
        engine = make_engine("sqlite:///shop.db")
        answered = Occasion("oncemq reload", "alice", "", 1)
        History(engine, "shop", Member("web-1", 7, "web-1")).note({}, answered, "taken over")
        engine.dispose()
        done = run_program("reload")
    finally:
        app.stop()
    assert done.exit_code == 0, done.stdout
    assert "has not been reloaded: it runs without `oncemq run`" in done.stderr
