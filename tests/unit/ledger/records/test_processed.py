"""Records of applied messages, found by their key."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, text

from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.records import processed

PAGE = Path(__file__).parents[4] / "docs/ledger.md"


@pytest.fixture
def engine(postgresql_database: str) -> Iterator[Engine]:
    """Return a database with 20,000 records, five of each key."""
    engine = make_engine(postgresql_database)
    with engine.begin() as connection:
        processed.TABLE.drop(connection, checkfirst=True)
        processed.TABLE.create(connection)
        connection.execute(
            text(
                "INSERT INTO oncemq_processed (consumer, identity, key, processed_at)"
                " SELECT 'shop.take', 'k' || n / 5 || '-' || n, 'k' || n / 5, now() FROM generate_series(0, 19999) AS n"
            )
        )
    yield engine
    engine.dispose()


def test_the_index_of_the_page_finds_the_records_of_a_key(engine: Engine) -> None:
    """The statement of docs/ledger.md makes an index by which the same query reads the blocks with that key alone."""
    (statement,) = re.findall(r"```sql\n(CREATE INDEX CONCURRENTLY .*?;)\n```", PAGE.read_text(), re.DOTALL)
    asked: list[tuple[str, object]] = []
    event.listen(engine, "before_cursor_execute", lambda *given: asked.append((given[2], given[3])))
    with engine.connect() as connection:
        before = processed.of_key(connection, "k777")
    (query, values) = asked[-1]
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(statement)
        connection.exec_driver_sql("VACUUM ANALYZE oncemq_processed")
        connection.exec_driver_sql("SET enable_seqscan = off")
        plan = "\n".join(row[0] for row in connection.exec_driver_sql(f"EXPLAIN (ANALYZE) {query}", values))
        assert processed.of_key(connection, "k777") == before
    assert len(before) == 5
    assert "Bitmap Index Scan on oncemq_processed_key_blocks" in plan
