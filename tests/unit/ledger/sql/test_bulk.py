"""Whole batches in one statement: which rows were new, byte by byte, waiting for rivals."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection, Engine, event

from oncemq.ledger.records import processed
from oncemq.ledger.sql.bulk import Bulk, Shape
from oncemq.ledger.sql.bulk_dialects import bulk_for
from oncemq.ledger.sql.bulk_mysql import MySQLBulk
from oncemq.retry.classify import Fault, classify

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
SHAPE = Shape(
    processed.TABLE,
    "identity",
    "processed_at",
    inserted=("key",),
    updated=("fingerprint", "result"),
    read=("fingerprint", "result"),
)
DEADLINE = 30.0


@pytest.fixture(params=["native", "without-returning"])
def bulk(engine: Engine, request: pytest.FixtureRequest) -> Iterator[Bulk]:
    """Lend the statements of each database; MariaDB serves MySQL's way, too."""
    with engine.connect() as connection:
        plain = request.param == "native"
        if not plain and connection.dialect.name != "mysql":
            yield bulk_for(connection.dialect, SHAPE)
            return
        yield bulk_for(connection.dialect, SHAPE) if plain else MySQLBulk(connection.dialect, SHAPE)


def insert(bulk: Bulk, connection: Connection, *keys: str, consumer: str = "app.one") -> set[str]:
    """Insert these keys; returns those that were new."""
    return bulk.insert_new(connection, consumer, [(key, "k") for key in sorted(keys)], NOW)


def test_only_new_rows_are_returned(engine: Engine, bulk: Bulk) -> None:
    """What is there already, in this transaction or an earlier one, is not new."""
    with engine.begin() as connection:
        assert insert(bulk, connection, "a", "b") == {"a", "b"}
        assert insert(bulk, connection, "b", "c") == {"c"}
    with engine.begin() as connection:
        assert insert(bulk, connection, "a", "b", "c", "d") == {"d"}


def test_consumers_do_not_see_each_other(engine: Engine, bulk: Bulk) -> None:
    """Two apps on one database do not suppress each other's messages."""
    with engine.begin() as connection:
        assert insert(bulk, connection, "a", consumer="app.one") == {"a"}
        assert insert(bulk, connection, "a", consumer="app.two") == {"a"}


def test_the_same_unit_tried_again_finds_its_committed_rows(engine: Engine, bulk: Bulk) -> None:
    """After a commit whose answer was lost nothing is new, although the same unit asks."""
    for expected in ({"a"}, set()):
        with engine.begin() as connection:
            assert insert(bulk, connection, "a") == expected


def test_keys_are_exact(engine: Engine, bulk: Bulk) -> None:
    """Trailing blanks, case, accents and long keys: every byte counts, nothing is cut."""
    keys = [
        "zz",
        "zz ",
        "ZZ",
        "é",
        "e\u0301",
        "x" * 512,
        "x" * 511,
        "ß",
        "ss",
        "\U0001f600",
        '"',
        "'",
        "\\",
        "{",
        "%s",
        ":a",
    ]
    with engine.begin() as connection:
        assert insert(bulk, connection, *keys) == set(keys)
        assert insert(bulk, connection, *keys) == set()
        assert set(bulk.read(connection, "app.one", sorted(keys))) == set(keys)
        bulk.delete(connection, "app.one", ["zz "])
        assert set(bulk.read(connection, "app.one", ["ZZ", "zz", "zz "])) == {"ZZ", "zz"}


def test_updates_and_reads(engine: Engine, bulk: Bulk) -> None:
    """Values come back as they were stored, also none, long ones and other scripts."""
    rows = [("a", "f", "x" * 100_000), ("b", None, '{"ü": "\U0001f600"}')]
    with engine.begin() as connection:
        insert(bulk, connection, "a", "b", "c")
        bulk.update(connection, "app.one", rows, NOW)
        found = bulk.read(connection, "app.one", ["a", "b", "c", "d"], lock=True)
    assert {key: tuple(values) for key, values in found.items()} == {
        "a": ("f", "x" * 100_000),
        "b": (None, '{"ü": "\U0001f600"}'),
        "c": (None, None),
    }


def test_moments_are_exact(engine: Engine, bulk: Bulk) -> None:
    """A moment comes back aware, in UTC, to the microsecond."""
    with engine.begin() as connection:
        insert(bulk, connection, "a")
        (row,) = processed.of_key(connection, "k")
    assert row["processed_at"] == NOW


def _insert_late(engine: Engine, bulk: Bulk, knocked: threading.Event) -> set[str] | Fault:
    def knock(*_: object) -> None:
        knocked.set()

    try:
        with engine.connect() as connection, connection.begin():
            event.listen(connection, "before_cursor_execute", knock)
            return insert(bulk, connection, "a", "b")
    except Exception as error:
        return classify(error)


@pytest.mark.parametrize("commits", [True, False])
def test_an_uncommitted_rival_is_waited_for(engine: Engine, bulk: Bulk, *, commits: bool) -> None:
    """The loser waits; it then has nothing new, or everything when the rival rolled back."""
    knocked = threading.Event()
    with ThreadPoolExecutor(1) as thread, engine.connect() as connection:
        transaction = connection.begin()
        insert(bulk, connection, "a", "b")
        late = thread.submit(_insert_late, engine, bulk, knocked)
        if engine.dialect.name != "sqlite":  # there it waits at BEGIN, before its first statement
            assert knocked.wait(DEADLINE)
        assert not late.done()
        transaction.commit() if commits else transaction.rollback()
        assert late.result(DEADLINE) == (set() if commits else {"a", "b"})


def test_losers_of_a_rollback_are_transient(engine: Engine, bulk: Bulk) -> None:
    """Of several that wait for one that rolls back, one inserts; on MySQL others may be told to try again."""
    events = [threading.Event() for _ in range(4)]
    with ThreadPoolExecutor(4) as threads, engine.connect() as connection:
        transaction = connection.begin()
        insert(bulk, connection, "a", "b")
        late = [threads.submit(_insert_late, engine, bulk, knocked) for knocked in events]
        if engine.dialect.name != "sqlite":
            assert all(knocked.wait(DEADLINE) for knocked in events)
        transaction.rollback()
        results = [future.result(DEADLINE) for future in late]
    assert results.count({"a", "b"}) == 1
    assert all(result in (set(), {"a", "b"}, Fault.TRANSIENT) for result in results)
