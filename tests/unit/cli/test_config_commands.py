"""The commands `config`: what was run, how it differs, and the return to it; secrets are in none of it."""

import json
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import Result
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from oncemq import App
from oncemq.config import pinned
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.records import configurations
from oncemq.ledger.records.configurations import REFUSED, START, STARTED
from oncemq.operate.configuration.history import History, Member, Occasion
from support.apps.command_line import run_program

APP = """\
# the shop
app: shop
brokers:
  main: {url: "embedded:///broker.db"}
  rabbit: {url: "amqp://shop:orange-juice@rabbit/v"}
database: {url: "sqlite:///shop.db"}
topics: {orders: {broker: main, key: body.id, identity: body.id, strategies: [unique_key]}}
consumers:
  pay: {topic: orders, handler: "handlers:pay", in_flight: 100}
"""
FILE = Path("app.yaml")


@dataclass
class Shop:
    """An app in the working directory."""

    def note(self, outcome: str = STARTED, problems: tuple[str, ...] = ()) -> None:
        """Note the file as it is."""
        engine = make_engine("sqlite:///shop.db")
        occasion = Occasion(START) if outcome == STARTED else Occasion("oncemq reload", "alice", "more", 1)
        History(engine, "shop", Member("web-1", 7, "web-1-7")).note(
            pinned([FILE]), occasion, outcome, problems
        )
        engine.dispose()

    def edit(self, old: str, new: str) -> None:
        """Change the file."""
        before = FILE.read_text()
        assert old in before
        FILE.write_text(before.replace(old, new))

    def run(self, *arguments: str) -> Result:
        """Run `oncemq config …`."""
        return run_program("config", *arguments)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """An app that has been started with 100, and has refused 300."""
    monkeypatch.chdir(tmp_path)
    FILE.write_text(APP)
    Path("handlers.py").write_text("def pay(order: dict) -> None:\n    pass\n")
    App.from_yaml().create_tables()
    made = Shop()
    made.note()
    made.edit("in_flight: 100", "in_flight: 300")
    made.note(REFUSED, ("amqp://shop:orange-juice@rabbit/v does not answer", "nor does another"))
    return made


def _stored() -> str:
    engine = make_engine("sqlite:///shop.db")
    with engine.connect() as connection:
        rows = [
            row
            for table in (configurations.TABLE, configurations.NOTES)
            for row in connection.execute(text(f"SELECT * FROM {table.name}"))
        ]
    engine.dispose()
    return str(rows)


def test_the_history_has_outcomes_reasons_and_no_secrets(shop: Shop) -> None:
    """Neither what is stored nor what is shown."""
    refused, started = map(json.loads, shop.run("history", "--json").stdout.splitlines())
    assert (refused["outcome"], refused["who"], refused["why"]) == ("refused", "alice", "more")
    assert refused["problems"] == ["amqp://shop:***@rabbit/v does not answer", "nor does another"]
    assert (started["outcome"], started["occasion"], started["host"]) == ("started", "start", "web-1")
    assert "does not answer (and 1 more)" in shop.run("history").stdout
    assert shop.run("show").stdout == APP.replace("orange-juice", "***")
    assert "orange-juice" not in _stored()


def test_it_works_while_the_file_is_wrong(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the app's name and its database are needed; that is when a former text is wanted."""
    shop.edit("[unique_key]", "[nonsense]")
    shop.edit("amqp://shop:orange-juice@rabbit/v", "amqp://${NO_SUCH_VARIABLE}:orange-juice@rabbit/v")
    assert shop.run("history").exit_code == 0
    assert "+topics: {orders: {broker: main, key: body.id, identity: body.id, strategies: [nonsense]}}" in (
        shop.run("diff").stdout
    )
    assert shop.run("rollback", "1", "--yes").exit_code == 0
    assert FILE.read_text() == APP
    without = APP.replace("orange-juice", "${PASSWORD}")
    shop.edit("orange-juice", "${PASSWORD}")
    shop.note()
    FILE.write_text(without.replace("consumers:", "consumers: ["))
    monkeypatch.setenv("PASSWORD", "from-outside")
    assert shop.run("rollback", "3", "--yes").exit_code == 0
    assert FILE.read_text() == without
    FILE.write_text("app: [")
    assert "app.yaml" in shop.run("history").stderr


def test_what_is_no_yaml_is_noted_without_its_text(shop: Shop) -> None:
    """A secret could stand anywhere in it."""
    shop.edit("consumers:", "consumers: [\n  red-wine")
    shop.note(REFUSED, ("app.yaml:8:1: not YAML",))
    noted = json.loads(shop.run("history", "--json").stdout.splitlines()[0])
    assert (noted["configuration"], noted["problems"]) == (3, ["app.yaml:8:1: not YAML"])
    assert "red-wine" not in _stored()
    FILE.write_text(APP)
    for command in ("show", "diff", "rollback"):
        done = shop.run(command, "3")
        assert done.exit_code == 3
        assert "its text is not kept" in done.stderr


def test_two_configurations_are_compared_without_secrets(shop: Shop) -> None:
    """By number or version; with the files unless two are named."""
    shop.edit("orange-juice", "green-tea")
    shown = json.loads(shop.run("diff", "1", "--json").stdout)
    changed = [line for line in shown["difference"].splitlines()[2:] if line[0] in "+-"]
    assert [line.rpartition(", ")[2] for line in changed] == ["in_flight: 100}", "in_flight: 300}"]
    assert shown["to"] == "now"
    assert json.loads(shop.run("diff", "1", "2", "--json").stdout)["to"] != "now"
    assert "no difference" in shop.run("diff", "2").stdout
    assert shop.run("diff", "99").exit_code == 3


def test_a_rollback_writes_the_former_text_with_the_secrets_of_the_file(shop: Shop) -> None:
    """A preview writes nothing; what the file was is kept, with its rights, and the audit trail has it."""
    shop.edit("orange-juice", "green-tea")
    before = FILE.read_text()
    FILE.chmod(0o640)
    assert '-  pay: {topic: orders, handler: "handlers:pay", in_flight: 300}' in (
        shop.run("rollback", "1", "--preview").stdout
    )
    assert FILE.read_text() == before
    assert shop.run("rollback", "1").exit_code != 0  # there is no terminal to confirm at
    assert FILE.read_text() == before
    done = shop.run("rollback", "1", "--yes", "--by", "alice", "--why", "too many")
    assert done.exit_code == 0, done.stderr
    assert "green-tea" not in done.stdout + done.stderr
    assert FILE.read_text() == APP.replace("orange-juice", "green-tea")
    saved = Path("app.yaml.before-rollback")
    assert saved.read_text() == before
    assert [stat.S_IMODE(file.stat().st_mode) for file in (FILE, saved)] == [0o640, 0o640]
    (row,) = map(json.loads, run_program("audit", "--json").stdout.splitlines())
    assert (row["action"], row["who"], row["why"], row["affected"]) == (
        "config rollback",
        "alice",
        "too many",
        1,
    )
    assert sorted(path.name for path in Path().iterdir() if "app.yaml" in path.name) == [
        FILE.name,
        saved.name,
    ]


def test_a_rollback_to_what_cannot_run_writes_nothing(shop: Shop) -> None:
    """Such as a handler that has gone since, or files of other names."""
    before = FILE.read_text()
    Path("handlers.py").write_text("")
    sys.modules.pop("handlers")
    done = shop.run("rollback", "1", "--yes")
    assert (done.exit_code, FILE.read_text()) == (3, before)
    assert "pay" in done.stderr
    FILE.rename("other.yaml")
    done = shop.run("rollback", "1", "--yes", "-f", "other.yaml")
    assert (done.exit_code, Path("other.yaml").read_text()) == (3, before)
    assert "name them: -f app.yaml" in done.stderr


def test_a_link_stays_a_link(shop: Shop) -> None:
    """Its target is written."""
    FILE.rename("app-of-today.yaml")
    FILE.symlink_to("app-of-today.yaml")
    assert shop.run("rollback", "1", "--yes").exit_code == 0
    assert FILE.is_symlink()
    assert Path("app-of-today.yaml").read_text() == APP


def test_two_processes_that_note_the_same_text_at_once_both_note_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one's insert fails by the index; it tries again, and finds the text."""
    add = configurations.add
    left = [1]

    def late(*arguments: object) -> object:
        if left.pop() if left else 0:
            raise IntegrityError("INSERT", {}, Exception("unique"))
        return add(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(configurations, "add", late)
    shop.edit("in_flight: 300", "in_flight: 400")
    shop.note()
    assert len(shop.run("history", "--json").stdout.splitlines()) == 3
