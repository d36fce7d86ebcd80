"""`oncemq pause` and `resume` on each broker: a paused consumer runs nothing, what came meanwhile runs once afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, text

from oncemq import App
from oncemq.cli.main import oncemq
from oncemq.engine.application import Application
from oncemq.ledger.database.engine import make_engine
from support.apps.program import eventually
from support.engine import running

pytestmark = pytest.mark.server
APP = """
app: {name}
brokers: {{main: {{url: "{broker}"}}}}
database: {{url: "{database}"}}
topics: {{{name}: {{key: body.key, identity: [body.id], strategies: [unique_key]{options}}}}}
consumers: {{pay: {{topic: {name}, handler: "{name}_handlers:pay"}}}}
"""
HANDLERS = """
from sqlalchemy import text
from sqlalchemy.orm import Session

def pay(order: dict, session: Session) -> None:
    session.execute(text("INSERT INTO paid (id) VALUES (:id)"), {"id": order["id"]})
"""
OPTIONS = {
    "rabbitmq": ("rabbitmq", ""),
    "rabbitmq-partitions": ("rabbitmq", ", partitions: 2"),
    "rocketmq": ("rocketmq", ", create: true, queues: 2"),
    "kafka": ("kafka", ", create: true"),
}


class Shop:
    """A running app, its program of commands, and what it has paid."""

    def __init__(self, app: App, running: Application, engine: Engine, topic: str) -> None:
        self._app = app
        self._running = running
        self._engine = engine
        self._topic = topic

    def publish(self, *numbers: int) -> None:
        """Publish orders of two keys."""
        for number in numbers:
            self._app.publish(self._topic, {"id": number, "key": number % 2})

    def paid(self) -> list[int]:
        """Return the committed effects."""
        with self._engine.connect() as connection:
            return sorted(connection.execute(text("SELECT id FROM paid")).scalars())

    def command(self, *words: str) -> None:
        """Run a command of the program."""
        done = CliRunner().invoke(oncemq, words, standalone_mode=False)
        assert not done.return_value, done.output

    def is_empty_and_paused(self) -> bool:
        """Return whether the process holds nothing and runs nothing."""
        (row,) = self._running.state().consumers
        return row.paused is not None and row.in_flight == 0


@pytest.fixture(params=list(OPTIONS))
def shop(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    postgresql_database: str,
    fresh: str,
) -> Iterator[Shop]:
    """The app on a broker and PostgreSQL, running."""
    broker, options = OPTIONS[request.param]
    name = fresh.replace("-", "_").replace(".", "_")
    values = {"name": name, "broker": request.getfixturevalue(f"{broker}_url"), "options": options}
    (tmp_path / "app.yaml").write_text(APP.format(database=postgresql_database, **values))
    (tmp_path / f"{name}_handlers.py").write_text(HANDLERS)
    monkeypatch.chdir(tmp_path)
    engine = make_engine(postgresql_database)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE paid (id INTEGER)"))
    app = App.from_yaml()
    app.create_tables()
    with running(app.plan()) as application:
        yield Shop(app, application, engine, name)
    app.stop()
    engine.dispose()


@pytest.mark.timeout(180)
def test_what_comes_while_it_is_paused_runs_once_after_it(shop: Shop) -> None:
    """Before, during and after the pause each message has one effect."""
    shop.publish(1, 2)
    eventually(lambda: shop.paid() == [1, 2], "two effects", timeout=60)
    shop.command("pause", "pay", "--why", "stock-taking")
    eventually(shop.is_empty_and_paused, "the pause", timeout=30)
    shop.publish(3, 4, 5)
    eventually(shop.is_empty_and_paused, "nothing held", timeout=30)
    assert shop.paid() == [1, 2]
    shop.command("resume", "pay")
    shop.publish(6)
    eventually(lambda: shop.paid() == [1, 2, 3, 4, 5, 6], "the rest, once", timeout=60)
