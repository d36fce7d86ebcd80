"""The commands `pause` and `resume`: who, why, what is shown of it, and what is kept."""

import json
from pathlib import Path

import pytest
from click.testing import Result

from oncemq import App
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.records import audit
from support.apps.command_line import run_program

APP = """
app: shop
brokers: {main: {url: "embedded:///broker.db"}}
database: {url: "%s"}
topics: {orders: {key: body.id, strategies: [unique_key]}}
consumers:
  pay: {topic: orders, handler: "handlers:pay"}
  mail: {topic: orders, handler: "handlers:pay"}
"""


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_url: str) -> str:
    """An app with its tables in the working directory; returns its database."""
    (tmp_path / "app.yaml").write_text(APP % database_url)
    (tmp_path / "handlers.py").write_text("def pay(order: dict) -> None:\n    pass\n")
    monkeypatch.chdir(tmp_path)
    App.from_yaml().create_tables()
    return database_url


def changes(url: str) -> list[tuple[str, str, str, str]]:
    """Return the audit rows, oldest first."""
    engine = make_engine(url)
    with engine.connect() as connection:
        rows = [(row.consumer, row.action, row.who, row.why) for row in audit.latest(connection, "shop", 100)]
    engine.dispose()
    return rows[::-1]


def run(*arguments: str) -> Result:
    """Run a command on the app."""
    return run_program(*arguments)


def test_a_pause_is_shown_with_who_and_why_until_it_is_resumed(url: str) -> None:
    """`status` and `inspect` name the operator; each change has its audit row."""
    assert run("pause", "pay", "--by", "alice", "--why", "prices are wrong").exit_code == 0
    shown = run("status", "--json")
    assert shown.exit_code == 1
    found = json.loads(shown.stdout)
    (pause,) = found["consumers"][0]["paused"]
    assert (pause["kind"], pause["who"], pause["why"]) == ("operator", "alice", "prices are wrong")
    assert found["consumers"][1]["paused"] == []
    assert found["complaints"][0].startswith("pay is paused by alice since ")
    assert found["complaints"][0].endswith(": prices are wrong – `oncemq resume pay`")
    (also,) = json.loads(run("inspect", "k1", "--json").stdout)["paused"]
    assert (also["consumer"], also["who"]) == ("pay", "alice")
    assert "nothing is known about this key" in run("inspect", "k1").stdout
    assert run("resume", "pay", "--by", "bob").exit_code == 0
    assert run("status").exit_code == 0
    assert changes(url) == [
        ("shop.pay", "pause", "alice", "prices are wrong"),
        ("shop.pay", "resume", "bob", ""),
    ]


def test_what_was_not_paused_cannot_be_resumed(url: str) -> None:
    """Exit code 1 and a sentence; nothing is written down."""
    done = run("resume", "pay")
    assert (done.exit_code, changes(url)) == (1, [])
    assert "pay was not paused by an operator" in done.stderr


def test_all_consumers_at_once(url: str) -> None:
    """`--all` means every consumer; the user of the shell is who did it, unless told otherwise."""
    assert run("pause", "--all").exit_code == 0
    assert [change[0] for change in changes(url)] == ["shop.pay", "shop.mail"]
    assert all("@" in change[2] for change in changes(url))
    assert run("resume", "--all").exit_code == 0


@pytest.mark.parametrize("wrong", [[], ["pay", "--all"], ["pya"]])
def test_a_choice_is_insisted_on(url: str, wrong: list[str]) -> None:
    """No consumer, one and all at once, or an unknown one: an error, and nothing is paused."""
    done = run("pause", *wrong)
    assert done.exit_code != 0
    assert changes(url) == []
    if wrong == ["pya"]:
        assert "pay" in done.stderr


def test_without_a_database_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says why."""
    text = APP.replace('database: {url: "%s"}\n', "").replace("[unique_key]", "[none]")
    (tmp_path / "app.yaml").write_text(text)
    (tmp_path / "handlers.py").write_text("def pay(order: dict) -> None:\n    pass\n")
    monkeypatch.chdir(tmp_path)
    done = run("pause", "pay")
    assert done.exit_code != 0
    assert "its processes read pauses in the ledger" in done.stderr
