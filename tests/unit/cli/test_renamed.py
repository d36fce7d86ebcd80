"""A consumer that has a new name keeps what it had under the old one; what is left of others is named and removed."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pika
import pytest
from click.testing import Result
from sqlalchemy import Engine, select

from oncemq.app import App
from oncemq.app_process import run_loaded
from oncemq.config import load
from oncemq.errors import ConfigError
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.records import processed
from support.apps.command_line import run_program
from support.effects import Base, effects

IDLE = timedelta(seconds=1)
APP = """
app: {app}
brokers: {{main: {{url: "{broker}"}}}}
database: {{url: "{database}"}}
defaults: {{retry: {{attempts: 2, backoff: {{first: 1s}}}}}}
topics: {{{topic}: {{key: body.id, identity: key, {options} strategies: [unique_key]}}}}
consumers: {{{consumer}: {{topic: {topic}, handler: "{app}_handlers:give_once", {more}}}}}
"""
HANDLERS = """
from pathlib import Path
from sqlalchemy.orm import Session
from support.effects import give

FAILS = Path(__file__).parent / "fails"


def give_once(body: dict, session: Session) -> None:
    if body["id"] == "2" and FAILS.exists():
        raise ValueError("not yet")
    give(session, body)
"""


class Renamed:
    """An app whose consumer changes its name, run in this process."""

    def __init__(self, folder: Path, broker: str, database: str, fresh: str, options: str) -> None:
        self.folder = folder
        self.fails = folder / "fails"
        self.name, self.broker, self.database = fresh, broker, database
        self.topic = f"{fresh}-paid"
        self._names = {"app": fresh, "database": database, "topic": self.topic, "options": options}
        (folder / f"{fresh}_handlers.py").write_text(HANDLERS)
        (folder / "orders.jsonl").write_text(
            "".join(f'{{"id": "{number}", "key": "k"}}\n' for number in range(100))
        )

    def app(self, consumer: str, more: str = "") -> Path:
        """Write the app's file with its one consumer so called; returns it."""
        file = self.folder / "app.yaml"
        file.write_text(APP.format(broker=self.broker, consumer=consumer, more=more, **self._names))
        return file

    def call(self, *arguments: str) -> Result:
        """Run a command on the app."""
        return run_program("-f", str(self.folder / "app.yaml"), *arguments)

    def consume(self) -> None:
        """Consume until nothing comes."""
        assert run_loaded(load([self.folder / "app.yaml"]), until_idle=IDLE) == 0

    def publish(self) -> None:
        """Publish all orders, again."""
        assert self.call("publish", self.topic, str(self.folder / "orders.jsonl")).exit_code == 0


@pytest.fixture(
    params=[
        ("embedded", "sqlite"),
        pytest.param(("rabbitmq", "postgresql"), marks=pytest.mark.server),
        pytest.param(("rocketmq", "mariadb"), marks=pytest.mark.server),
    ],
    ids="-".join,
)
def renamed(
    request: pytest.FixtureRequest, tmp_path: Path, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Renamed]:
    """Return the app on each broker, and on each database."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    broker, database = request.param
    embedded = broker == "embedded"
    url = f"embedded:///{tmp_path}/broker.db" if embedded else request.getfixturevalue(f"{broker}_url")
    found = Renamed(
        tmp_path,
        url,
        request.getfixturevalue(f"{database}_database"),
        fresh,
        "create: true," if broker == "rocketmq" else "",
    )
    yield found
    if broker == "rabbitmq":
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            for consumer in ("award", "points"):
                for end in ("", ".dead"):
                    with suppress(pika.exceptions.AMQPError):
                        connection.channel().queue_delete(f"{fresh}-{consumer}.{found.topic}{end}")


@pytest.fixture
def engine(renamed: Renamed) -> Iterator[Engine]:
    """Return the database, with all tables."""
    engine = make_engine(renamed.database)
    schema.create(engine)
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


def test_a_renamed_consumer_keeps_everything(renamed: Renamed, engine: Engine) -> None:
    """100 orders published twice, before and after the rename, and a dead letter of the old name: 100 effects."""
    renamed.app("award")
    renamed.consume()
    renamed.fails.touch()
    renamed.publish()
    renamed.consume()
    assert len(effects(engine)) == 99
    renamed.app("points", "formerly: award")
    renamed.fails.unlink()
    assert renamed.call("check", "--connect").stderr == ""
    assert renamed.call("dead-letters", "replay", "points", "--all").exit_code == 0
    renamed.publish()
    renamed.consume()
    assert sorted(map(int, effects(engine))) == list(range(100))


def test_formerly_written_late_joins_both_records(renamed: Renamed, engine: Engine) -> None:
    """A rename without `formerly` is warned of; written afterwards, what was applied under either name is applied once."""
    renamed.app("award")
    renamed.consume()
    renamed.app("points")
    renamed.consume()
    warned = renamed.call("check", "--connect").stderr
    assert "no consumer of this app is called award" in warned
    assert "which no consumer reads" in warned
    renamed.publish()
    renamed.consume()
    renamed.app("points", "formerly: award")
    renamed.consume()
    assert sorted(map(int, effects(engine))) == list(range(100))
    with engine.connect() as connection:
        owners = set(connection.scalars(select(processed.TABLE.c.consumer)))
    assert owners == {f"{renamed.name}.award"}
    assert "once read what it reads no more" in renamed.call("check", "--connect").stderr


def test_what_is_left_of_a_consumer_is_removed(renamed: Renamed, engine: Engine) -> None:
    """`tables prune` lists what is left, asks, and removes rows of the ledger and queues; a second call finds nothing."""
    renamed.app("award")
    renamed.consume()
    renamed.publish()
    renamed.consume()
    renamed.app("points")
    listed = renamed.call("tables", "prune").stdout
    assert "no consumer of this app is called award, and there is left of it: 100 records" in listed
    refused = renamed.call("tables", "prune", "award")
    assert refused.exit_code == 2
    assert "add --yes" in refused.stderr
    pruned = renamed.call("tables", "prune", "award", "--yes")
    assert pruned.exit_code == 0
    assert "from the ledger" in pruned.stdout
    done = "left group" if renamed.broker.startswith("rocketmq") else "removed "
    assert done in pruned.stdout
    assert renamed.call("tables", "prune").stdout == "nothing is left of consumers that the app has no more\n"
    with engine.connect() as connection:
        assert connection.scalars(select(processed.TABLE.c.consumer)).all() == []


def test_a_consumer_of_the_app_is_not_pruned(tmp_path: Path, fresh: str) -> None:
    """Only names that no consumer has can be pruned."""
    app = Renamed(tmp_path, f"embedded:///{tmp_path}/b.db", f"sqlite:///{tmp_path}/a.db", fresh, "")
    engine = make_engine(f"sqlite:///{tmp_path}/a.db")
    schema.create(engine)
    engine.dispose()
    app.app("award")
    refused = app.call("tables", "prune", "award", "--yes")
    assert refused.exit_code == 3
    assert "award is a consumer of this app" in refused.stderr


@pytest.mark.parametrize(
    ("formerly", "said"),
    [
        ({"one": "two"}, "two is a consumer of this app"),
        ({"one": "old", "two": ["older", "old"]}, "old was formerly the name of one"),
        ({"one": "one"}, "one was formerly one, which says nothing"),
    ],
)
def test_former_names_belong_to_one_consumer(formerly: dict[str, object], said: str) -> None:
    """Two consumers cannot have been the same one."""
    app = App("shop", brokers={"main": "embedded://"}, database="sqlite://")
    app.topic("paid", key="body.id", strategies=["unique_key"])
    for name in ("one", "two"):
        app.consumer(topic="paid", name=name, formerly=formerly.get(name))(print_nothing)
    with pytest.raises(ConfigError, match=said):
        app.check()


def print_nothing(body: dict) -> None:  # type: ignore[type-arg]
    """Do nothing."""
