"""What is old is deleted in bounded batches, around what someone holds."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, func, insert, inspect, select

from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.purge import HISTORY, LOCKED_ROWS, PROCESSED, STATES, SUSPECTS, purge
from oncemq.ledger.records import history, processed

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def fill(engine: Engine, consumer: str, count: int, at: datetime) -> None:
    """Insert processed rows of one age."""
    with engine.begin() as connection:
        connection.execute(
            insert(processed.TABLE),
            [
                {"consumer": consumer, "identity": f"{at:%j}-{number}", "key": "k", "processed_at": at}
                for number in range(count)
            ],
        )


def left(engine: Engine, consumer: str) -> int:
    """Return how many rows a consumer has."""
    with engine.connect() as connection:
        ours = processed.TABLE.c.consumer == consumer
        return connection.execute(select(func.count()).select_from(processed.TABLE).where(ours)).scalar_one()


def test_only_old_rows_of_the_scope_go(engine: Engine) -> None:
    """Younger rows and other consumers' rows stay."""
    for days in (1, 10):
        fill(engine, "app.one", 5, NOW - timedelta(days=days))
    fill(engine, "app.two", 5, NOW - timedelta(days=10))
    assert purge(engine, PROCESSED, NOW - timedelta(days=7), scope="app.one") == 5
    assert purge(engine, PROCESSED, NOW - timedelta(days=7), scope="app.one") == 0
    assert (left(engine, "app.one"), left(engine, "app.two")) == (5, 5)


def test_a_batch_is_bounded(engine: Engine) -> None:
    """No transaction deletes more than its limit, oldest first."""
    for days in (9, 8):
        fill(engine, "app.one", 10, NOW - timedelta(days=days))
    assert [purge(engine, PROCESSED, NOW, scope="app.one", limit=8) for _ in range(4)] == [8, 8, 4, 0]


@pytest.mark.parametrize("server", ["postgresql", "mariadb"])
@pytest.mark.server
def test_held_rows_are_skipped(server: str, request: pytest.FixtureRequest) -> None:
    """A row that a consumer's transaction holds is left for the next time, without waiting for it."""
    engine = make_engine(request.getfixturevalue(f"{server}_database"))
    schema.create(engine)
    fill(engine, "app.one", 5, NOW - timedelta(days=10))
    with engine.begin() as connection:
        for number in (0, 1):
            ours = {"consumer": "app.one", "identity": f"{NOW - timedelta(days=10):%j}-{number}"}
            assert connection.execute(select(processed.TABLE).filter_by(**ours).with_for_update()).one()
        assert purge(engine, PROCESSED, NOW, scope="app.one") == 3
    assert purge(engine, PROCESSED, NOW, scope="app.one") == 2
    engine.dispose()


def test_every_aged_table_has_its_index(engine: Engine) -> None:
    """Purging never reads a whole table; suspects are few."""
    for aged in (PROCESSED, HISTORY, STATES, LOCKED_ROWS):
        leading = [index["column_names"] for index in inspect(engine).get_indexes(aged.table.name)]
        assert [aged.scope, aged.moment] in leading or [aged.moment] in leading


def test_all_kinds_can_be_purged(engine: Engine) -> None:
    """History, suspects, states and mutexes go the same way."""
    row = history.HistoryRow("app.one", "t", "k", "i", "stale", "why", 1, NOW - timedelta(days=9))
    with engine.begin() as connection:
        history.add(connection, [row, row])
    assert purge(engine, HISTORY, NOW, scope="app.one") == 2
    for aged in (SUSPECTS, STATES, LOCKED_ROWS):
        assert purge(engine, aged, NOW) == 0
