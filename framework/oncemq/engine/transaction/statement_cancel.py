"""Cancels the statement that a connection is running, from another thread; one way for each database."""

from contextlib import suppress
from typing import Any

from sqlalchemy import Engine, NullPool

_SECONDS = 5.0
"""A server that is unavailable must not keep the watchdog from other workers."""


def cancel_statement(engine: Engine, driver: Any) -> None:
    """Cancel what a connection is running; does nothing on unknown databases, and never raises.

    Args:
        engine: the connection's.
        driver: the driver's connection.
    """
    # The statement may have ended, the connection may be lost.
    with suppress(Exception):
        _cancel(engine, driver)


def _cancel(engine: Engine, driver: Any) -> None:
    if engine.dialect.name == "postgresql":
        if hasattr(driver, "cancel_safe"):
            driver.cancel_safe(timeout=_SECONDS)
        elif hasattr(driver, "cancel"):
            driver.cancel()
    elif engine.dialect.name == "sqlite":
        driver.interrupt()
    elif engine.dialect.name in {"mysql", "mariadb"}:
        _kill_query(engine, int(driver.thread_id()))


def _kill_query(engine: Engine, thread: int) -> None:
    # Not from the engine's own pool: it may be exhausted because its connections are stuck.
    other = NullPool(engine.pool._creator).connect()
    try:
        other.cursor().execute(f"KILL QUERY {thread:d}")
    finally:
        other.close()
