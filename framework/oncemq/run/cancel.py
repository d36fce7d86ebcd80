"""How to cancel the statement that a connection is running, from another thread; one way for each database."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Engine, text


def canceller(engine: Engine, connection: Connection) -> Callable[[], None]:
    """Return a function that cancels what `connection` is running now; it does nothing on unknown databases."""
    driver: Any = connection.connection.driver_connection
    if engine.dialect.name == "postgresql" and hasattr(driver, "cancel"):
        return _quietly(driver.cancel)
    if engine.dialect.name == "sqlite":
        return _quietly(driver.interrupt)
    if engine.dialect.name in {"mysql", "mariadb"}:
        thread = int(driver.thread_id())
        return _quietly(lambda: _kill_query(engine, thread))
    return lambda: None


def _kill_query(engine: Engine, thread: int) -> None:
    with engine.connect() as other:
        other.execute(text(f"KILL QUERY {thread:d}"))


def _quietly(cancel: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        # The statement may have ended by itself, the connection may be gone.
        with suppress(Exception):
            cancel()

    return run
