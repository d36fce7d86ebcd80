"""The limit of lock waits of one transaction."""

from typing import Any

import pytest
from pymysql.err import OperationalError as Refused
from sqlalchemy.exc import OperationalError

from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.sql.lock_waits import only_a_moment

pytestmark = pytest.mark.server


def test_why_a_transaction_failed_is_not_hidden(
    mariadb_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A COMMIT that the server refuses, as a Galera cluster does after conflicts, leaves a transaction that takes no statement."""

    def refused(*_: Any) -> None:
        raise Refused(1213, "Deadlock found when trying to get lock; try restarting transaction")

    engine = make_engine(mariadb_database)
    with engine.connect() as connection:
        transaction = connection.begin()
        monkeypatch.setattr(engine.dialect, "do_commit", refused)
        with pytest.raises(OperationalError, match="1213"), only_a_moment(connection):
            transaction.commit()
    engine.dispose()
