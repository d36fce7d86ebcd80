"""Transactions that a caller may use and only the framework commits."""

from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Engine, select

from oncemq.engine.transaction.caller_transaction import CallerTransaction
from oncemq.engine.transaction.connection_watch import ConnectionWatch, install
from oncemq.engine.transaction.handler_session import obstacle
from oncemq.errors import SessionOwned
from support.effects import effects, give


def test_a_transaction_that_the_driver_has_ended_is_not_committed(engine: Engine) -> None:
    """SQLAlchemy takes it for open; MariaDB's drivers do not tell whether they are in one."""
    install(engine)
    loan = CallerTransaction(engine)
    give(loan.session, {"id": "1", "key": "k"})
    loan.session.flush()
    loan.session.connection().connection.driver_connection.rollback()
    with pytest.raises(SessionOwned, match="ended"):
        loan.finish()
    assert effects(engine) == []


def test_a_transaction_that_began_behind_an_ended_one_is_not_committed(engine: Engine) -> None:
    """A later statement begins another transaction, which is rolled back, and the caller is told.

    On SQLite the statement has no transaction at all, so it stays; the caller is told all the same.
    """
    install(engine)
    loan = CallerTransaction(engine)
    loan.session.connection().connection.driver_connection.rollback()
    give(loan.session, {"id": "2", "key": "k"})
    with pytest.raises(SessionOwned, match="ended"):
        loan.finish()
    assert effects(engine) == (["2"] if engine.dialect.name == "sqlite" else [])


def test_a_transaction_that_is_over_on_the_server_is_an_obstacle(engine: Engine) -> None:
    """PostgreSQL's driver tells that it is in error, SQLite's that it has ended; MariaDB's drivers tell neither."""
    if engine.dialect.name not in {"postgresql", "sqlite"}:
        return
    with engine.connect() as connection:
        transaction = connection.begin()
        connection.execute(select(1))
        assert obstacle(connection, transaction, ConnectionWatch()) is None
        driver: Any = connection.connection.driver_connection
        with suppress(Exception):
            driver.execute("SELECT 1 / 0" if engine.dialect.name == "postgresql" else "ROLLBACK")
        assert isinstance(obstacle(connection, transaction, ConnectionWatch()), SessionOwned)
