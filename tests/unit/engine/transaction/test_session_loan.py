"""Transactions that a caller may use and only the framework commits."""

from contextlib import nullcontext

import pytest
from sqlalchemy import Engine

from oncemq.engine.transaction.connection_watch import install
from oncemq.engine.transaction.session_loan import SessionLoan
from oncemq.errors import SessionOwned
from support.effects import effects, give


def test_a_transaction_that_the_driver_has_ended_is_not_committed(engine: Engine) -> None:
    """SQLAlchemy takes it for open; MariaDB's drivers do not tell whether they are in one."""
    install(engine)
    loan = SessionLoan(engine)
    give(loan.session, {"id": "1", "key": "k"})
    loan.session.flush()
    loan.session.connection().connection.driver_connection.rollback()
    told = engine.dialect.name in {"sqlite", "postgresql"}
    with pytest.raises(SessionOwned, match="ended or in error on the server") if told else nullcontext():
        loan.finish()
    assert effects(engine) == []
