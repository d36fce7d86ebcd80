"""A database becomes read-only under a running app, as a primary that failed over does: it is said, and costs no message anything."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.orm import Session

from oncemq.ledger.database.engine import make_engine
from oncemq.observe.state import PauseReason
from oncemq.testing.scripted import ScriptedAdapter
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.apps.warm import WarmProgram
from support.effects import Base, effects, empty, give
from support.engine import make_app, make_consumer, running
from support.heard import Heard
from support.patience import PATIENCE
from support.servers import OwnServer
from support.units import build

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

FIRST, ALL = 20, 40
APP = """
app: shop
brokers: {{local: {{url: "embedded:///{folder}/broker.db"}}}}
database: {{url: "{database}"}}
topics: {{orders: {{key: body.key, identity: body.id, strategies: [unique_key]}}}}
consumers: {{points: {{topic: orders, handler: "handlers:award"}}}}
"""
HANDLERS = """
def award(order: dict) -> None: ...
"""


class Primary(NamedTuple):
    """A database that can become read-only.

    Args:
        url: of the app's account, which may do what it wants with its own tables and nothing with the server.
        administer: runs statements as the server's administrator.
        closing: make the database read-only for the app.
        opening: make it writable again.
    """

    url: str
    administer: Callable[[str], None]
    closing: tuple[str, ...]
    opening: tuple[str, ...]

    def close(self) -> None:
        """Become read-only."""
        for statement in self.closing:
            self.administer(statement)

    def open(self) -> None:
        """Become writable again."""
        for statement in self.opening:
            self.administer(statement)


def administrator(url: str) -> Callable[[str], None]:
    """Return what runs one statement, outside of a transaction."""

    def run(statement: str) -> None:
        engine = create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(statement))
        engine.dispose()

    return run


@pytest.fixture(params=["postgresql", "mariadb"])
def primary(request: pytest.FixtureRequest, fresh: str) -> Iterator[Primary]:
    """A PostgreSQL database that ends its connections as a fail-over does, and a MariaDB of the test's own that keeps them."""
    if request.param == "postgresql":
        url = str(request.getfixturevalue("postgresql_database"))
        cut = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{fresh}' AND pid <> pg_backend_pid()"
        server = str(request.getfixturevalue("postgresql_url"))
        setting = f"ALTER DATABASE {fresh} SET default_transaction_read_only = "
        yield Primary(url, administrator(server), (f"{setting}on", cut), (f"{setting}off", cut))
        return
    start: OwnServer = request.getfixturevalue("own_mariadb")
    server = start().url
    administer = administrator(server)
    administer(f"CREATE DATABASE {fresh}")
    # Who has all rights on the whole server has READ ONLY ADMIN, and may write all the same.
    administer(f"CREATE USER '{fresh}'@'%' IDENTIFIED BY 'secret'")
    administer(f"GRANT ALL ON {fresh}.* TO '{fresh}'@'%'")
    url = make_url(server).set(username=fresh, password="secret", database=fresh)
    yield Primary(
        url.render_as_string(hide_password=False),
        administer,
        ("SET GLOBAL read_only = 1",),
        ("SET GLOBAL read_only = 0",),
    )


def handler(order: dict[str, Any], session: Session) -> None:
    """Leave one effect."""
    give(session, order)


def deliver(adapter: ScriptedAdapter, first: int, last: int) -> None:
    """Deliver the orders `first` to `last - 1`, of ten keys."""
    for number in range(first, last):
        adapter.deliver(json.dumps({"id": str(number), "key": f"k{number % 10}"}).encode())


def prepared(url: str) -> Engine:
    """Return an engine on a database with the tests' tables."""
    engine = make_engine(url)
    Base.metadata.create_all(engine)
    empty(engine)
    return engine


def test_a_read_only_database_pauses_and_charges_no_message(primary: Primary) -> None:
    """The pause names the reason; when the database takes writes again, every message takes effect once, at its first attempt."""
    engine, adapter, heard = prepared(primary.url), ScriptedAdapter(), Heard()
    plan = make_app(adapter, engine, make_consumer(handler, [build(UniqueKey, engine, "points")], workers=2))
    with running(plan, observers=[heard]):
        deliver(adapter, 0, FIRST)
        adapter.wait_until(lambda told: len(told.acknowledged) == FIRST, 30 * PATIENCE)
        primary.close()
        deliver(adapter, FIRST, ALL)
        # The second one is of a connection that was opened since; nothing resumed in between.
        *_, paused = heard.wait_for("consumer_paused", 2, timeout=60 * PATIENCE)
        assert len(adapter.acknowledged) == FIRST
        assert heard.of("consumer_resumed") == []
        primary.open()
        adapter.wait_until(lambda told: len(told.acknowledged) == ALL, 90 * PATIENCE)
        heard.wait_for("consumer_resumed", timeout=30 * PATIENCE)
    assert {call.arguments[1] for call in heard.of("consumer_paused")} == {PauseReason.DATABASE}
    assert "read-only" in str(paused.fields["error"]).replace("read_only", "read-only")
    assert (adapter.retried, adapter.dead, adapter.refused) == ([], [], [])
    seen = make_engine(primary.url)
    assert sorted(effects(seen)) == sorted(map(str, range(ALL)))
    seen.dispose()


def test_check_and_the_start_refuse_a_read_only_database(primary: Primary, tmp_path: Path) -> None:
    """Both say what to do, with the exit code of what an operator must change; nothing is said of a writable one."""
    (tmp_path / "app.yaml").write_text(APP.format(folder=tmp_path, database=primary.url))
    (tmp_path / "handlers.py").write_text(HANDLERS)
    program = WarmProgram(tmp_path, {})
    program.succeed("tables", "create")
    assert "read-only" not in program.succeed("check", "--connect")
    primary.close()
    for command in ("check", "--connect"), ("run", "--until-idle", "1s"):
        answer = program.call(*command)
        assert answer.returncode == 5, answer.stdout + answer.stderr
        assert (
            "is read-only: give the primary's address, or an account that may write"
            in answer.stdout + answer.stderr
        )
    primary.open()
    assert "read-only" not in program.succeed("check", "--connect")
