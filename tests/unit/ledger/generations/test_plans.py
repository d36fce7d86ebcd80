"""What PostgreSQL does for the ledger's statements: every look-up, and every expiry, by an index."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from oncemq.ledger import purge
from oncemq.ledger.generations import records, registry, rotation
from oncemq.ledger.generations.bulk import GenerationBulk
from oncemq.ledger.purge import Aged
from oncemq.ledger.records import processed
from oncemq.ledger.sql.bulk import Shape

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SCOPE = "shop.award"
SHAPE = Shape(
    processed.TABLE,
    "identity",
    "processed_at",
    inserted=("key",),
    updated=("result",),
    read=("fingerprint", "result"),
)
ROWS = 20_000
_AGED = {name: found for name, found in vars(purge).items() if isinstance(found, Aged)}


@contextmanager
def heard(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    """Collect the statements of an engine with their parameters."""
    statements: list[tuple[str, Any]] = []

    def hear(_c: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: Any) -> None:
        statements.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", hear)
    yield statements
    event.remove(engine, "before_cursor_execute", hear)


def plan_of(engine: Engine, statement: str, parameters: Any, *, no_scans: bool = False) -> str:
    """Return how PostgreSQL would run a statement."""
    with engine.begin() as connection:
        if no_scans:
            connection.execute(text("SET LOCAL enable_seqscan = off"))
        lines = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).scalars().all()
        connection.rollback()
        return "\n".join(lines)


@pytest.fixture
def full(ledger: Engine) -> Engine:
    """A ledger with an old table and three generations, each with many records."""
    with ledger.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO oncemq_processed (consumer, identity, key, processed_at)"
                " SELECT 'shop.award', 'old ' || n, 'k', now() FROM generate_series(1, :rows) n"
            ),
            {"rows": ROWS},
        )
    rotation.begin(ledger, SCOPE)
    for number in range(3):
        if number:
            rotation.rotate(ledger, SCOPE, timedelta(0))
        with ledger.begin() as connection:
            newest = registry.generations_of(connection, SCOPE)[0].table
            connection.execute(
                text(
                    f"INSERT INTO {newest} (processed_at, identity, key)"
                    " SELECT now(), :number || ' ' || n, 'k' FROM generate_series(1, :rows) n"
                ),
                {"rows": ROWS, "number": str(number)},
            )
    return ledger


@pytest.mark.parametrize("size", [1, 500])
def test_a_unit_looks_up_all_generations_by_index_in_one_statement(full: Engine, size: int) -> None:
    """Also the results of its duplicates, whether the database has statistics or not."""
    bulk = GenerationBulk(SHAPE, lambda: 0.0)
    rows = [(f"{number % 4} {number}", "key") for number in range(size)]
    with full.begin() as connection:
        bulk.insert_new(connection, SCOPE, [("first", "key")], NOW)
    with heard(full) as statements, full.begin() as connection:
        bulk.insert_new(connection, SCOPE, sorted(rows), NOW)
        bulk.read(connection, SCOPE, [row[0] for row in rows])
    assert len(statements) == 2
    for statement, parameters in statements:
        shown = plan_of(full, statement, parameters)
        assert "Seq Scan on oncemq_processed" not in shown
        assert shown.count("Index") >= 3


def test_a_unit_changes_its_records_by_index(full: Engine) -> None:
    """It stores results, and deletes the records of what is not final, without reading the generation."""
    bulk = GenerationBulk(SHAPE, lambda: 0.0)
    with heard(full) as statements, full.begin() as connection:
        bulk.insert_new(connection, SCOPE, [("a", "key"), ("b", "key")], NOW)
        bulk.update(connection, SCOPE, [("a", "1")], NOW)
        bulk.delete(connection, SCOPE, ["b"])
    for statement, parameters in statements[-2:]:
        assert "Index Scan using oncemq_processed" in plan_of(full, statement, parameters)


def test_a_key_is_found_by_index_in_every_sealed_generation(full: Engine) -> None:
    """`inspect KEY` reads no sealed generation: neither where the key is the identity, nor where it is stored."""
    with full.begin() as connection:
        sealed = registry.generations_of(connection, SCOPE)[1].table
        connection.execute(
            text(f"INSERT INTO {sealed} VALUES (now(), 'alone', NULL), (now(), 'v2', 'stored')")
        )
    rotation.compact(full, SCOPE)
    for key, identities in (("alone", ["alone"]), ("stored", ["v2"])):
        with heard(full) as statements, full.begin() as connection:
            found = records.of_key(connection, SCOPE, key)
        assert [(row["identity"], row["key"]) for row in found] == [(name, key) for name in identities]
        (asked,) = [each for each in statements if f"FROM {sealed} " in each[0]]
        shown = plan_of(full, *asked)
        assert f"Index Scan using {sealed}_key" in shown
        assert f"Index Scan using {sealed}_id" in shown
        assert "Seq Scan" not in shown


def test_a_generation_that_an_earlier_version_made_compact_gets_the_index_of_keys(full: Engine) -> None:
    """Its other index is not built again."""
    with full.begin() as connection:
        for each in registry.generations_of(connection, SCOPE):
            if not each.legacy:
                connection.execute(text(f"COMMENT ON TABLE {each.table} IS 'oncemq: sealed and compact'"))
    with heard(full) as statements:
        names = rotation.compact(full, SCOPE)
    assert len(names) == 2
    with full.connect() as connection:
        said = text(
            "SELECT count(*) FROM pg_class WHERE obj_description(oid, 'pg_class') = 'oncemq: sealed and compact'"
        )
        # Two sealed ones and the open one: an earlier version that runs beside sees nothing to do.
        assert connection.scalar(said) == 3
    assert sum(statement.startswith("CREATE INDEX") for statement, _ in statements) == 2
    assert not any(statement.startswith(("REINDEX", "VACUUM")) for statement, _ in statements)
    assert rotation.compact(full, SCOPE) == []


@pytest.mark.parametrize("name", sorted(_AGED))
def test_rows_of_every_table_expire_by_an_index(full: Engine, name: str) -> None:
    """Old rows of claims, history, requests, states and the others are found by their age, not by reading the table."""
    with heard(full) as statements:
        purge.purge(full, _AGED[name], NOW, scope="shop.award")
    (statement, parameters) = statements[-1]
    shown = plan_of(full, statement, parameters, no_scans=True)
    assert f"on {_AGED[name].table.name}" in shown
    assert "Seq Scan" not in shown
    assert "Index" in shown
