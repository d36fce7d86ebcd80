"""Forty dead letters are replayed and purged by the command, on each broker and database."""

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pika
import pytest
from sqlalchemy import Engine

from oncemq import App
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from support.apps.command_line import run_program
from support.effects import Base, effects

APP = """
app: {app}
brokers: {{main: {{url: "{broker}"}}}}
database: {{url: "{database}"}}
topics: {{{app}: {{key: body.id, {options} strategies: [unique_key]}}}}
consumers: {{count: {{topic: {app}, handler: "{app}_handlers:count"}}}}
"""
HANDLERS = """
from pathlib import Path
from sqlalchemy.orm import Session
from oncemq import Reject
from support.effects import give

FAILS = Path(__file__).parent / "fails"


def count(body: dict, session: Session) -> None:
    if FAILS.exists():
        raise Reject("not now")
    give(session, body)
"""
FORTY = 40


@pytest.fixture(
    params=[
        ("embedded", "sqlite"),
        pytest.param(("rabbitmq", "postgresql"), marks=pytest.mark.server),
        pytest.param(("rocketmq", "mariadb"), marks=pytest.mark.server),
    ],
    ids="-".join,
)
def app(
    request: pytest.FixtureRequest, tmp_path: Path, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[App]:
    """An app in the working directory whose handler rejects while there is a file `fails`."""
    broker, database = request.param
    embedded = broker == "embedded"
    url = f"embedded:///{tmp_path}/broker.db" if embedded else request.getfixturevalue(f"{broker}_url")
    (tmp_path / f"{fresh}_handlers.py").write_text(HANDLERS)
    (tmp_path / "app.yaml").write_text(
        APP.format(
            app=fresh,
            broker=url,
            database=request.getfixturevalue(f"{database}_database"),
            options="create: true, queues: 2," if broker == "rocketmq" else "",
        )
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    yield App.from_yaml()
    if broker == "rabbitmq":
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            for end in ("", ".dead"):
                with suppress(pika.exceptions.AMQPError):
                    connection.channel().queue_delete(f"{fresh}-count.{fresh}{end}")


@pytest.fixture
def engine(app: App) -> Iterator[Engine]:
    """The database, with all tables."""
    engine = make_engine(app.plan().engine.url)  # type: ignore[union-attr]
    schema.create(engine)
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


def refuse(app: App, topic: str, names: list[str]) -> None:
    """Have these orders rejected."""
    Path("fails").touch()
    with app.publisher() as publisher:
        publisher.publish_many(topic, [{"id": name, "key": name} for name in names])
    app.run(until_idle=timedelta(seconds=1))
    Path("fails").unlink()


def command(*arguments: str) -> dict[str, object]:
    """Return what `oncemq dead-letters …` says; it ends with exit code 0."""
    done = run_program("-f", "app.yaml", "dead-letters", *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_all_are_replayed_and_others_purged(app: App, engine: Engine, fresh: str) -> None:
    """Both commands end with exit code 0 and a true count; replayed ones take effect once, purged ones never."""
    app.run(until_idle=timedelta(milliseconds=100))
    refuse(app, fresh, [f"replayed-{number}" for number in range(FORTY)])
    assert effects(engine) == []
    assert command("replay", "--all") == {"consumer": "count", "replayed": FORTY}
    app.run(until_idle=timedelta(seconds=1))
    assert len(effects(engine)) == len(set(effects(engine))) == FORTY
    refuse(app, fresh, [f"purged-{number}" for number in range(FORTY)])
    assert command("purge", "--all", "--yes") == {"consumer": "count", "purged": FORTY}
    app.run(until_idle=timedelta(seconds=1))
    assert len(effects(engine)) == FORTY
