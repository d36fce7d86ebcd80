"""Two apps whose strategies decide about one topic by the same column: the second is refused before it skips anything."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from oncemq.app_process import run_loaded
from oncemq.config import load
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from support.apps.command_line import run_program

APP = """
app: {app}
brokers: {{shop: {{url: "embedded:///{folder}/broker.db"}}}}
database: {{url: "sqlite:///{folder}/shop.db"}}
topics: {{changes: {{key: body.ride, identity: [body.ride, body.to]}}}}
consumers:
  track:
    topic: changes
    group: {app}
    handler: "handlers:track"
    strategies: [{{state_machine: {{to: body.to, states: [created, paid], entity: {{table: rides, key: ride, {state}}}}}}}]
"""
HANDLERS = """
from sqlalchemy import text
from sqlalchemy.orm import Session


def track(change: dict, session: Session) -> None:
    session.execute(text("INSERT INTO effects (ride) VALUES (:ride)"), {"ride": change["ride"]})
    session.execute(text("INSERT OR IGNORE INTO rides (ride) VALUES (:ride)"), {"ride": change["ride"]})
"""


class Apps:
    """Apps with one database and one topic, each with a group of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "handlers.py").write_text(HANDLERS)
        (folder / "changes.jsonl").write_text(
            "".join(json.dumps({"ride": str(ride), "to": "created"}) + "\n" for ride in range(3))
        )
        self.database = f"sqlite:///{folder}/shop.db"
        engine = make_engine(self.database)
        schema.create(engine)
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE effects (ride VARCHAR(40))"))
            connection.execute(
                text(
                    "CREATE TABLE rides (ride VARCHAR(40) PRIMARY KEY, status VARCHAR(20), billing VARCHAR(20))"
                )
            )
        engine.dispose()

    def app(self, name: str, state: str = "state: status") -> Path:
        """Return the file of an app."""
        file = self.folder / f"{name}.yaml"
        file.write_text(APP.format(app=name, folder=self.folder, state=state))
        return file

    def run(self, *apps: Path) -> int:
        """Let apps see the topic, publish, and let them consume one after the other; returns the number of effects."""
        for app in apps:
            assert run_loaded(load([app]), until_idle=timedelta(milliseconds=100)) == 0
        changes = str(self.folder / "changes.jsonl")
        assert run_program("-f", str(apps[0]), "publish", "changes", changes).exit_code == 0
        for app in apps:
            assert run_loaded(load([app]), until_idle=timedelta(milliseconds=500)) == 0
        with create_engine(self.database).connect() as connection:
            return int(connection.execute(text("SELECT count(*) FROM effects")).scalar_one())


@pytest.fixture
def apps(tmp_path: Path) -> Apps:
    """Return apps that share a database."""
    return Apps(tmp_path)


def test_a_second_app_that_decides_by_the_column_is_refused(apps: Apps) -> None:
    """The check and the start name the column, its owner and the ways out; a deliberate move is told once."""
    first, second = apps.app("loyalty"), apps.app("billing")
    assert apps.run(first) == 3
    for arguments in (("check", "--connect"), ("run", "--until-idle", "9s")):
        refusal = run_program("-f", str(second), *arguments)
        assert refusal.exit_code == 3
        assert "cannot decide by column rides.status for topic changes" in refusal.stderr
        assert "it belongs to loyalty.track (app.consumer)" in refusal.stderr
        assert "give it a column of its own" in refusal.stderr
    assert run_program("-f", str(second), "groups", "take", "--yes").exit_code == 0
    assert run_program("-f", str(second), "check", "--connect").exit_code == 0
    assert run_program("-f", str(first), "check", "--connect").exit_code == 3


def test_apps_with_columns_of_their_own_get_every_message(apps: Apps) -> None:
    """Each of them moves its own column."""
    assert apps.run(apps.app("loyalty"), apps.app("billing", "state: billing")) == 6
