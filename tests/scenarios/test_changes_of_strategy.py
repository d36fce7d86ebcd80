"""A consumer changes its strategy under traffic, by the documented path: each message takes effect once, in its order."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, make_url, text

from oncemq.config import load
from oncemq.contracts.adapter import Confirmed
from oncemq.message.envelope import OutgoingMessage
from support.apps.program import eventually
from support.apps.warm import WarmProgram
from support.database.shared_database import drop_database

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STATES = ("created", "paid", "packed", "shipped")
KEYS = 40
_APP = """
app: shop
brokers: {{main: {{url: "embedded:///{folder}/broker.db"}}}}
database: {database}
grace: 10s
topics:
  orders: {{key: body.id, identity: [body.id, body.state]}}
consumers:
  judge:
    topic: orders
    handler: "handlers:apply"
    strategies: {strategies}
    retry: {{attempts: 20, backoff: {{first: 100ms, factor: 1}}}}
"""
_HANDLERS = '''"""One row for each effect."""

from sqlalchemy import text
from sqlalchemy.orm import Session


def apply(order: dict, session: Session) -> None:
    if order["state"] == "created":
        session.execute(text("INSERT INTO rides (id) VALUES (:id)"), order)
    session.execute(text("INSERT INTO effects (entity, state) VALUES (:id, :state)"), order)
'''
_ENTITY = "entity: {table: rides, key: id, state: status}"
_MACHINE = (
    "[{{state_machine: {{to: body.state, states: [created, paid, packed, shipped], early: retry{more}}}}}]"
)
_NUMBER = {
    "postgresql": "serial PRIMARY KEY",
    "mysql": "int PRIMARY KEY AUTO_INCREMENT",
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
}


class Shop:
    """An app whose every effect is a row.

    Args:
        folder: of its files.
        database: empty.
    """

    def __init__(self, folder: Path, database: str) -> None:
        self._folder = folder
        self._database = f'{{url: "{database}"}}'
        self._url = database
        self.program = WarmProgram(folder)
        self.engine = create_engine(database)
        self.engines = [self.engine]
        (folder / "handlers.py").write_text(_HANDLERS)
        with self.engine.begin() as connection:
            number = _NUMBER[self.engine.dialect.name]
            connection.execute(
                text(f"CREATE TABLE effects (number {number}, entity varchar(20), state varchar(20))")
            )
            connection.execute(
                text("CREATE TABLE rides (id varchar(20) PRIMARY KEY, status varchar(20), version int)")
            )

    def configure(self, strategies: str) -> None:
        """Write the app's file."""
        (self._folder / "app.yaml").write_text(
            _APP.format(folder=self._folder, database=self._database, strategies=strategies)
        )

    def add_shard(self, url: str) -> None:
        """Let the app have a second database; `configure` writes it."""
        self._database = f'{{shards: ["{self._url}", "{url}"], by: key}}'
        self.engines.append(create_engine(url))

    def publish(self, states: Sequence[str]) -> None:
        """Publish these states of all keys, and a copy of each."""
        plan = load([self._folder / "app.yaml"]).plan
        adapter, target = plan.adapters["main"], plan.consumers[0].subscription
        adapter.prepare([target])
        try:
            for state in states:
                content = {"state": state, "number": STATES.index(state) + 1}
                bodies = [json.dumps({"id": f"key-{key}", **content}).encode() for key in range(KEYS)]
                messages = [
                    OutgoingMessage(body, key=f"key-{number % KEYS}")
                    for number, body in enumerate(bodies * 2)
                ]
                answers = adapter.publish(target.topic, target.options, messages)
                assert all(isinstance(answer, Confirmed) for answer in answers), answers
        finally:
            adapter.close(grace=timedelta(seconds=5))
            for engine in plan.engines:
                engine.dispose()

    def run_until(self, effects: int) -> None:
        """Run the app until there are so many effects, and stop it in the midst of the traffic."""
        with self.program.started("run") as running:
            eventually(lambda: self.count() >= effects, f"{effects} effects", 60, running.said)
            assert running.drain() == 0, running.said()

    def finish(self) -> None:
        """Let the app do what is left; each message has had one effect, in order."""
        self.program.succeed("run", "--until-idle", "3s", timeout=120)
        rows = [row for engine in self.engines for row in _effects(engine)]
        found = {
            key: tuple(row.state for row in group)
            for key, group in groupby(sorted(rows, key=lambda row: row.entity), lambda row: row.entity)
        }
        assert found == {f"key-{key}": STATES for key in range(KEYS)}

    def count(self) -> int:
        """Return how many effects there are."""
        return sum(len(_effects(engine)) for engine in self.engines)

    def close(self) -> None:
        """Close the test's own connections."""
        for engine in self.engines:
            engine.dispose()


def _effects(engine: Engine) -> Sequence[Any]:
    with engine.connect() as connection:
        return connection.execute(text("SELECT entity, state FROM effects ORDER BY entity, number")).all()


@pytest.fixture(
    params=["sqlite", *(pytest.param(name, marks=pytest.mark.server) for name in ("postgresql", "mariadb"))]
)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """An app without tables."""
    made = Shop(tmp_path, request.getfixturevalue(f"{request.param}_database"))
    yield made
    made.close()


@contextmanager
def _half_done(shop: Shop, strategies: str) -> Iterator[None]:
    """The app was stopped in the midst of its traffic; what is left follows the block, with copies of all before."""
    shop.configure(strategies)
    shop.program.succeed("tables", "create")
    shop.publish(STATES[:3])
    shop.run_until(KEYS + KEYS // 2)
    yield
    shop.publish(STATES[:3])
    shop.publish(STATES)
    shop.finish()


def test_unique_key_becomes_tiered(shop: Shop) -> None:
    """Both have one record of each message in the same table, so nothing has to move."""
    with _half_done(shop, "[unique_key]"):
        shop.configure("[{tiered: {redis: false, bloom: true}}]")


def test_states_of_the_ledger_become_a_column(shop: Shop) -> None:
    """The app does not start while the ledger has states that the column may not have; the command moves them."""
    with _half_done(shop, _MACHINE.format(more="")):
        shop.configure(_MACHINE.format(more=f", {_ENTITY}"))
        refused = shop.program.call("run", "--until-idle", "1s")
        assert refused.returncode != 0
        assert "oncemq tables move judge --preview" in refused.stderr
        shown = shop.program.succeed("tables", "move", "judge", "--preview")
        assert "rides.status: " in shown
        assert "would be copied" in shown
        assert "deleted" in shop.program.succeed("tables", "move", "judge")


def test_a_sequence_of_the_ledger_becomes_a_column(shop: Shop) -> None:
    """The app does not start while the ledger has numbers that the column may not have; the command moves them."""
    with _half_done(shop, "[{sequence: {order: body.number}}]"):
        shop.configure(
            "[{optimistic_lock: {entity: {table: rides, key: id, version: version}, version: body.number}}]"
        )
        refused = shop.program.call("run", "--until-idle", "1s")
        assert refused.returncode != 0
        assert "oncemq tables move judge --preview" in refused.stderr
        shown = shop.program.succeed("tables", "move", "judge", "--preview")
        assert "rides.version: " in shown
        assert "would be copied" in shown
        assert "deleted" in shop.program.succeed("tables", "move", "judge")


@pytest.fixture
def copied(shop: Shop, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Copy the whole database, as its own tools do; returns the copy's URL."""
    engine, url = shop.engine, make_url(shop.engine.url)
    name = f"{url.database}_b"
    admin = create_engine(url.set(database="postgres") if url.get_backend_name() == "postgresql" else url)
    admin = admin.execution_options(isolation_level="AUTOCOMMIT")

    def copy() -> str:
        engine.dispose()
        if url.get_backend_name() == "sqlite":
            shutil.copy(str(url.database), tmp_path / "copy.db")
            return f"sqlite:///{tmp_path}/copy.db"
        with admin.connect() as connection:
            if url.get_backend_name() == "postgresql":
                connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {url.database}"))
            else:
                connection.execute(text(f"CREATE DATABASE {name}"))
                for (table,) in connection.execute(text("SHOW TABLES")).all():
                    connection.execute(text(f"CREATE TABLE {name}.{table} LIKE {table}"))
                    connection.execute(text(f"INSERT INTO {name}.{table} SELECT * FROM {table}"))
        return url.set(database=name).render_as_string(hide_password=False)

    yield copy
    shop.close()
    if url.get_backend_name() != "sqlite":
        with admin.connect() as connection:
            drop_database(connection, name)
    admin.dispose()


def test_one_database_becomes_two_shards(shop: Shop, copied: Callable[[], str]) -> None:
    """Both are copies, of which each keeps what belongs to it; a second run finds nothing to delete."""
    with _half_done(shop, _MACHINE.format(more=f", {_ENTITY}")):
        shop.add_shard(copied())
        shop.configure(_MACHINE.format(more=f", {_ENTITY}"))
        mine = ("--table", "effects=entity", "--table", "rides=id")
        shop.program.succeed("tables", "split", *mine, "--preview")
        before = shop.count()
        said = shop.program.succeed("tables", "split", *mine)
        assert "deleted" in said
        assert 2 * shop.count() == before
        assert "0 deleted" in shop.program.succeed("tables", "split", *mine)
