"""Two apps with one ledger and one group: the second is refused before it receives anything."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import Result
from sqlalchemy import create_engine, text

from oncemq.app_process import run_loaded
from oncemq.config import load
from oncemq.errors import ConfigError
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from support.apps.command_line import run_program

APP = """
app: {app}
brokers: {{shop: {{url: "{broker}"}}}}
database: {{url: "{database}"}}
topics: {{"{topic}": {{key: body.order, {options} strategies: [unique_key]}}}}
consumers: {{{consumer}: {{topic: "{topic}", group: "{group}", handler: "handlers:award"}}}}
"""
HANDLERS = """
from sqlalchemy import text
from sqlalchemy.orm import Session


def award(order: dict, session: Session) -> None:
    session.execute(text("INSERT INTO points (number) VALUES (:number)"), {"number": order["order"]})
"""


class Shop:
    """Apps with one database and one group, run in this process."""

    def __init__(self, folder: Path, broker: str, database: str, fresh: str, options: str) -> None:
        self.folder = folder
        self.broker = broker or f"embedded:///{folder}/broker.db"
        self.database = database
        self.names = {"topic": f"{fresh}-paid", "group": f"{fresh}-group", "options": options}
        self.orders = folder / "orders.jsonl"
        self.orders.write_text("".join(f'{{"order": {number}}}\n' for number in range(20)))
        (folder / "handlers.py").write_text(HANDLERS)
        engine = make_engine(self.database)
        schema.create(engine)
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE points (number INTEGER)"))
        engine.dispose()

    def app(self, app: str, consumer: str = "award", broker: str = "") -> Path:
        """Return the file of an app."""
        file = self.folder / f"{app}-{consumer}.yaml"
        file.write_text(
            APP.format(
                app=app,
                broker=broker or self.broker,
                database=self.database,
                consumer=consumer,
                **self.names,
            )
        )
        return file

    def call(self, app: Path, *arguments: str) -> Result:
        """Run a command on an app."""
        return run_program("-f", str(app), *arguments)

    def consume(self, app: Path) -> None:
        """Publish the orders, and let the app consume until nothing more comes."""
        assert run_loaded(load([app]), until_idle=timedelta(milliseconds=100)) == 0
        assert self.call(app, "publish", self.names["topic"], str(self.orders)).exit_code == 0
        assert run_loaded(load([app]), until_idle=timedelta(seconds=1)) == 0

    def effects(self) -> int:
        """Return how often points were given."""
        with create_engine(self.database).connect() as connection:
            return int(connection.execute(text("SELECT count(*) FROM points")).scalar_one())


@pytest.fixture(
    params=[
        ("embedded", "sqlite"),
        pytest.param(("rabbitmq", "postgresql"), marks=pytest.mark.server),
        pytest.param(("rocketmq", "mariadb"), marks=pytest.mark.server),
    ],
    ids="-".join,
)
def shop(request: pytest.FixtureRequest, tmp_path: Path, fresh: str) -> Shop:
    """Return apps on each kind of broker, and each kind of database."""
    broker, database = request.param
    url = "" if broker == "embedded" else request.getfixturevalue(f"{broker}_url")
    return Shop(
        tmp_path,
        url,
        request.getfixturevalue(f"{database}_database"),
        fresh,
        "create: true," if broker == "rocketmq" else "",
    )


def test_a_second_app_in_the_group_is_refused(shop: Shop) -> None:
    """The check and the start name the first owner, nothing is applied twice, and a deliberate move is told once."""
    first, second = shop.app("loyalty"), shop.app("copied")
    shop.consume(first)
    for refusal in (shop.call(second, "check", "--connect"), shop.call(second, "run", "--until-idle", "9s")):
        assert refusal.exit_code == 3
        assert "it belongs to loyalty.award (app.consumer)" in refusal.stderr
        assert "run `oncemq groups take`" in refusal.stderr
    with pytest.raises(ConfigError, match=r"it belongs to loyalty\.award"):
        run_loaded(load([second]), until_idle=timedelta(seconds=9))
    shop.consume(first)
    assert shop.effects() == 20
    assert shop.call(second, "groups", "take", "--yes").exit_code == 0
    assert shop.call(second, "check", "--connect").exit_code == 0
    assert shop.call(first, "check", "--connect").exit_code == 3
    listed = shop.call(second, "groups", "list", "--json").stdout.splitlines()
    assert {json.loads(line)["owner"] for line in listed} == {"copied.award"}


@pytest.fixture
def embedded(tmp_path: Path, fresh: str) -> Shop:
    """Return apps on the embedded broker."""
    return Shop(tmp_path, "", f"sqlite:///{tmp_path}/shop.db", fresh, "")


def test_a_consumer_that_was_renamed_is_refused(embedded: Shop) -> None:
    """A new name in the old group has no records of what was applied."""
    embedded.consume(embedded.app("loyalty"))
    refusal = embedded.call(embedded.app("loyalty", "points"), "run", "--until-idle", "9s")
    assert refusal.exit_code == 3
    assert "loyalty.points cannot use group" in refusal.stderr


def test_another_address_of_what_may_be_the_same_broker_is_warned_about(embedded: Shop) -> None:
    """Nothing proves that two addresses are two brokers, so a person is told."""
    embedded.consume(embedded.app("loyalty"))
    second = embedded.app("copied", broker=f"embedded:///{embedded.folder}/elsewhere.db")
    result = embedded.call(second, "check", "--connect")
    assert result.exit_code == 0
    assert "if both addresses lead to one broker, messages are applied twice" in result.stderr


def test_taking_over_asks_first(embedded: Shop) -> None:
    """Without an answer nothing changes hands; the question names the former owner."""
    first, second = embedded.app("loyalty"), embedded.app("copied")
    embedded.consume(first)
    asked = embedded.call(second, "groups", "take")
    assert asked.exit_code != 0
    assert "award takes what belongs to loyalty.award" in asked.stderr
    assert embedded.call(first, "check", "--connect").exit_code == 0
