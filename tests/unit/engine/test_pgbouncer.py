"""Behind PgBouncer in transaction mode, where statements of one connection run on many of the server's."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, make_url
from sqlalchemy.orm import Session

from oncemq.ledger.database import transaction_pooling
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.database.probe import prove, startup_warnings
from oncemq.testing.scripted import ScriptedAdapter
from oncemq_strategies.unique_key.strategy import UniqueKey
from services.install import install_packages
from support.apps.program import eventually
from support.effects import Base, effects, give
from support.engine import make_app, make_consumer, running
from support.heard import Heard
from support.units import build

MESSAGES = 300
USER = "postgres"
"""The account for it where the tests run as root, which PgBouncer refuses."""


def _program() -> str:
    # Debian's folder for it is often not in PATH.
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None and install_packages("pgbouncer"):
        found = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin")
    if found is None:
        raise AssertionError("pgbouncer is not installed, and cannot be: apt-get install pgbouncer")
    return found


@contextmanager
def pgbouncer(url: str, *, servers: int, mode: str = "transaction") -> Iterator[str]:
    """Start it with so many connections to the server; yields the URL of the same database behind it."""
    there = make_url(url)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="oncemq-pgbouncer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        settings = folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host={there.host} port={there.port} user={there.username} password={there.password}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
            f"pool_mode = {mode}\ndefault_pool_size = {servers}\nmax_client_conn = 200\n"
            "ignore_startup_parameters = extra_float_digits\n"
        )
        settings.chmod(0o644)
        process = subprocess.Popen(
            [_program(), "-q", str(settings)],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=USER if os.geteuid() == 0 else None,
        )
        try:
            eventually(lambda: _listens(port), "PgBouncer listens", 20)
            yield there.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)
        finally:
            process.terminate()
            process.wait(10)


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.fixture
def pooled(postgresql_database: str) -> Iterator[Engine]:
    """An engine whose connections share three of the server's."""
    with pgbouncer(postgresql_database, servers=3) as url:
        engine = make_engine(url)
        Base.metadata.create_all(engine)
        yield engine
        engine.dispose()


def handler(order: dict[str, Any], session: Session) -> None:
    """Leave one effect."""
    give(session, order)


@pytest.mark.parametrize("noticed", [True, False])
def test_no_message_loses_an_attempt(pooled: Engine, monkeypatch: pytest.MonkeyPatch, noticed: bool) -> None:
    """Statements prepared on another of the server's connections cost nothing, also where the pooler was not noticed."""
    if not noticed:
        monkeypatch.setattr(transaction_pooling, "is_pooled", lambda _engine: False)
    adapter, heard = ScriptedAdapter(), Heard()
    strategies = [build(UniqueKey, pooled, "points")]
    plan = make_app(adapter, pooled, make_consumer(handler, strategies, workers=4))
    with running(plan, observers=[heard]):
        for number in range(MESSAGES):
            adapter.deliver(json.dumps({"id": str(number), "key": f"k{number % 20}"}).encode())
        adapter.wait_until(lambda seen: len(seen.acknowledged) == MESSAGES, 60)
    assert (adapter.retried, adapter.dead) == ([], [])
    assert sorted(effects(pooled)) == sorted(map(str, range(MESSAGES)))
    if noticed:
        assert not heard.of("consumer_paused")


def test_the_limit_of_lock_waits_holds_in_each_transaction(pooled: Engine) -> None:
    """It is not left on connections that other clients get, and no statement is prepared."""
    prove(pooled)
    with pooled.connect() as connection:
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar() == "10s"
        for _ in range(10):
            connection.exec_driver_sql("SELECT 1")
        assert connection.exec_driver_sql("SELECT count(*) FROM pg_prepared_statements").scalar() == 0
        connection.rollback()
        connection.execution_options(isolation_level="AUTOCOMMIT")
        assert connection.exec_driver_sql("SELECT current_setting('lock_timeout')").scalar() == "0"


def test_a_pooler_in_transaction_mode_is_a_warning(pooled: Engine, postgresql_database: str) -> None:
    """`check --connect` and the start say what it takes away; a pooler in session mode takes nothing."""
    prove(pooled)
    assert any("pooler in transaction mode" in warning for warning in startup_warnings(pooled))
    with pgbouncer(postgresql_database, servers=3, mode="session") as url:
        engine = make_engine(url)
        prove(engine)
        assert not any("pooler" in warning for warning in startup_warnings(engine))
        engine.dispose()
