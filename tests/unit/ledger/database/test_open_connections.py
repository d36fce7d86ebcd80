"""The connections that are ended when a database no longer answers."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.database.open_connections import OpenConnections


@pytest.fixture(params=["mariadb", "postgresql"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine that has no connection yet."""
    engine = make_engine(request.getfixturevalue(f"{request.param}_url"))
    try:
        yield engine
    finally:
        engine.dispose()


def test_a_connection_that_is_opened_later_is_ended(engine: Engine) -> None:
    """What waits for its answer gets the driver's error."""
    known = OpenConnections(engine)
    with engine.connect() as connection:
        known.end()
        with pytest.raises(DBAPIError):
            connection.exec_driver_sql("SELECT 1")
        connection.invalidate()


def test_a_connection_that_was_in_the_pool_before_is_ended(engine: Engine) -> None:
    """Checks of the start, or an app's own code, may have used the engine first."""
    engine.connect().close()
    known = OpenConnections(engine)
    with engine.connect() as connection:
        known.end()
        with pytest.raises(DBAPIError):
            connection.exec_driver_sql("SELECT 1")
        connection.invalidate()


def test_a_unit_that_takes_a_connection_pays_nothing(engine: Engine) -> None:
    """Nothing of ours runs when a pooled connection is taken and given back."""
    OpenConnections(engine)
    assert not engine.pool.dispatch.checkout
    assert not engine.pool.dispatch.checkin
