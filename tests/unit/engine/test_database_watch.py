"""The thread that works in the database beside the main thread, and the end of the app."""

import threading
from pathlib import Path

import pytest
from sqlalchemy import Engine

from oncemq.engine.crash.worker_registry import WorkerRegistry
from oncemq.engine.database_watch import DatabaseWatch
from oncemq.ledger.database.engine import make_engine
from oncemq.testing.scripted import ScriptedAdapter
from support.engine import make_app, make_consumer, running


def test_the_database_is_closed_after_the_last_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection in use when its engine is closed would stay open until it is collected."""
    engine = make_engine(f"sqlite:///{tmp_path}/app.db")
    entered, stopping, closed = threading.Event(), threading.Event(), threading.Event()
    closed_meanwhile: list[bool] = []

    def look(_: WorkerRegistry) -> None:
        entered.set()
        if stopping.wait(20) and not closed_meanwhile:
            closed_meanwhile.append(closed.wait(0.5))

    stop, dispose = DatabaseWatch.stop, Engine.dispose

    def stopped(watch: DatabaseWatch) -> None:
        stop(watch)
        stopping.set()

    def disposed(engine: Engine, close: bool = True) -> None:
        closed.set()
        dispose(engine, close)

    monkeypatch.setattr(WorkerRegistry, "still_here", look)
    monkeypatch.setattr(DatabaseWatch, "stop", stopped)
    with running(make_app(ScriptedAdapter(), engine, make_consumer(lambda order: None))):
        assert entered.wait(20)
        monkeypatch.setattr(Engine, "dispose", disposed)
    assert closed_meanwhile == [False]
    assert closed.is_set()
