"""A database that accepts connections and answers nothing: what waits for it is tried again, and nothing is lost."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, make_url, text
from sqlalchemy.orm import Session

from oncemq.engine import database_watch
from oncemq.errors import InfrastructureError
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.database.probe import prove
from oncemq.observe.health import readiness
from oncemq.testing.scripted import ScriptedAdapter
from oncemq.testing.tcp_proxy import TcpProxy
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.apps.program import eventually
from support.effects import Base, effects, give
from support.engine import make_app, make_consumer, running
from support.units import build

SERVERS = ["mariadb", "postgresql"]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The times are shorter than a real app's."""
    monkeypatch.setattr(database_watch, "SILENT_AFTER", 1.0)
    monkeypatch.setattr(database_watch, "PROBE_WITHIN", 1.0)
    monkeypatch.setattr(database_watch, "ASK_EVERY", 0.5)
    monkeypatch.setattr(make_engine.__module__ + "._CONNECT_SECONDS", 2)


@contextmanager
def proxied(url: str) -> Iterator[tuple[TcpProxy, Engine]]:
    """A proxy in front of the server, and an engine that connects to it."""
    there = make_url(url)
    with TcpProxy(there.host or "127.0.0.1", there.port or 0) as door:
        engine = make_engine(
            there.set(host="127.0.0.1", port=door.port).render_as_string(hide_password=False)
        )
        try:
            yield door, engine
        finally:
            engine.dispose()


@pytest.fixture(params=SERVERS)
def silent(request: pytest.FixtureRequest, fresh: str) -> Iterator[tuple[TcpProxy, Engine]]:
    """A database of the test's own, behind a proxy that can freeze."""
    server = make_url(request.getfixturevalue(f"{request.param}_url"))
    admin = make_engine(server.render_as_string(hide_password=False))
    with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"CREATE DATABASE {fresh}"))
    own = server.set(database=fresh).render_as_string(hide_password=False)
    try:
        with proxied(own) as (door, engine):
            Base.metadata.create_all(engine)
            yield door, engine
            door.thaw()
    finally:
        force = " WITH (FORCE)" if request.param == "postgresql" else ""
        with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(f"DROP DATABASE {fresh}{force}"))
        admin.dispose()


def test_what_waits_for_a_silent_database_is_tried_again(silent: tuple[TcpProxy, Engine]) -> None:
    """A handler's statement ends with an error, the app is not ready meanwhile, and the message takes effect once."""
    door, engine = silent
    adapter, reached = ScriptedAdapter(), threading.Event()

    def handle(order: dict[str, Any], session: Session) -> None:
        if not reached.is_set():
            door.freeze()
            reached.set()
        session.execute(text("SELECT 1"))
        give(session, order)

    plan = make_app(adapter, engine, make_consumer(handle, [build(UniqueKey, engine, "points")]))
    with running(plan) as app:
        adapter.deliver(json.dumps({"id": "1", "key": "k"}).encode())
        assert reached.wait(20)
        eventually(lambda: app.state().database_silent is not None, "silence is noticed")
        report = readiness(app.state(), plan.clock.monotonic())
        assert any(problem.startswith("the database has not answered for ") for problem in report.problems)
        eventually(lambda: app.state().consumers[0].paused is not None, "the consumer pauses")
        door.thaw()
        adapter.wait_until(lambda seen: len(seen.acknowledged) == 1, 30)
        eventually(lambda: app.state().database_silent is None, "answers are noticed")
    assert effects(engine) == ["1"]
    assert (adapter.retried, adapter.dead) == ([], [])


def test_an_app_that_is_stopped_does_not_wait_for_a_silent_database(silent: tuple[TcpProxy, Engine]) -> None:
    """The main thread never waits for an answer, so a signal is obeyed and the end comes within the grace."""
    door, engine = silent
    grace = timedelta(seconds=2)
    plan = make_app(ScriptedAdapter(), engine, make_consumer(lambda order: None), grace=grace)
    with running(plan) as app:
        door.freeze()
        eventually(lambda: app.state().database_silent is not None, "silence is noticed")


@pytest.mark.parametrize("kind", SERVERS)
def test_a_login_that_is_not_answered_is_no_wait_without_limit(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """A server that accepts and says nothing is told from one that takes its time over a statement."""
    with proxied(request.getfixturevalue(f"{kind}_url")) as (door, engine):
        door.freeze()
        with pytest.raises(InfrastructureError, match="does not answer"):
            prove(engine)
        door.thaw()
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar() == 1
            driver = connection.connection.driver_connection
            assert getattr(driver, "_read_timeout", None) is None
