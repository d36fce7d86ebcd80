"""Transactions that a caller may use and only the framework commits."""

import pytest
from sqlalchemy import Engine

from oncemq.engine.transaction.caller_transaction import CallerTransaction
from oncemq.engine.transaction.connection_watch import install
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
