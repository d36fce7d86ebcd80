"""Cancels the statement that a connection is running, from another thread; one way for each database."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Engine, NullPool

_SECONDS = 5.0
"""A server that is unavailable must not keep the watchdog from other workers."""


def canceller(engine: Engine, connection: Connection) -> Callable[[], None]:
    """Return a function that cancels what `connection` is running; it does nothing on unknown databases."""
    driver: Any = connection.connection.driver_connection
    if engine.dialect.name == "postgresql" and hasattr(driver, "cancel_safe"):
        return _quietly(lambda: driver.cancel_safe(timeout=_SECONDS))
    if engine.dialect.name == "postgresql" and hasattr(driver, "cancel"):
        return _quietly(driver.cancel)
    if engine.dialect.name == "sqlite":
        return _quietly(driver.interrupt)
    if engine.dialect.name in {"mysql", "mariadb"}:
        thread = int(driver.thread_id())
        return _quietly(lambda: _kill_query(engine, thread))
    return lambda: None


def _kill_query(engine: Engine, thread: int) -> None:
    # Not from the engine's own pool: it may be exhausted because its connections are stuck.
    other = NullPool(engine.pool._creator).connect()
    try:
        other.cursor().execute(f"KILL QUERY {thread:d}")
    finally:
        other.close()


def _quietly(cancel: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        # The statement may have ended, the connection may be lost.
        with suppress(Exception):
            cancel()

    return run
