"""Measures the bytes of a record of an applied message on PostgreSQL, indexes included, in one table and in generations.

    python -m benchmarks.runs.ledger_size --records 200000

Records are inserted as units do, 200 in a transaction, in the order of their time and with identities in no order. The database is
that of ONCEMQ_TEST_POSTGRESQL; a database of its own is created in it and dropped.
"""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from time import monotonic, perf_counter

from benchmarks.stage.servers import own_database, postgresql
from sqlalchemy import Engine, text

from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.generations import registry, rotation
from oncemq.ledger.generations.bulk import processed_bulk
from oncemq.ledger.records import processed
from oncemq.ledger.sql.bulk import Shape

SHAPE = Shape(processed.TABLE, "identity", "processed_at", inserted=("key",))
TOGETHER = 200
SCOPE = "bench.points"


def identities(records: int, length: int) -> Iterator[list[str]]:
    """Yield the identities of each unit, of this length, sorted."""
    for start in range(0, records, TOGETHER):
        numbers = range(start, min(start + TOGETHER, records))
        yield sorted({f"order-{blake2b(str(number).encode()).hexdigest()}"[:length] for number in numbers})


def size_of(engine: Engine, table: str) -> int:
    """Return the bytes of a table with its indexes."""
    with engine.connect() as connection:
        found = text("SELECT pg_total_relation_size(CAST(:name AS regclass))")
        return int(connection.execute(found, {"name": table}).scalar_one())


def fill(engine: Engine, records: int, length: int, *, generations: bool) -> float:
    """Insert the records; returns the seconds."""
    began = perf_counter()
    with engine.connect() as connection:
        bulk = processed_bulk(connection.dialect, SHAPE, monotonic, generations=generations)
    for unit in identities(records, length):
        rows = [(identity, identity) for identity in unit]
        with engine.begin() as connection:
            bulk.insert_new(connection, SCOPE, rows, datetime.now(UTC))
    return perf_counter() - began


def measure(engine: Engine, records: int, length: int) -> list[str]:
    """Return the lines of one length."""
    schema.create(engine, [registry.TABLE])
    seconds = fill(engine, records, length, generations=False)
    lines = [_line("one table", length, records, size_of(engine, "oncemq_processed"), seconds)]
    with engine.begin() as connection:
        connection.execute(text("TRUNCATE oncemq_processed"))
    rotation.begin(engine, SCOPE)
    seconds = fill(engine, records, length, generations=True)
    with engine.connect() as connection:
        table = registry.generations_of(connection, SCOPE)[0].table
    lines.append(_line("open generation", length, records, size_of(engine, table), seconds))
    rotation.rotate(engine, SCOPE, timedelta(0))
    rotation.compact(engine, SCOPE)
    lines.append(_line("sealed generation", length, records, size_of(engine, table), None))
    with engine.begin() as connection:
        rotation.retire(engine, SCOPE, timedelta(0))
    began = perf_counter()
    rotation.drop_retired(engine, SCOPE, after=timedelta(0))
    lines.append(f"dropping it: {(perf_counter() - began) * 1000:.0f} ms")
    rotation.drop_all(engine)
    schema.drop(engine)
    return lines


def _line(what: str, length: int, records: int, size: int, seconds: float | None) -> str:
    rate = "" if seconds is None else f", {records / seconds:,.0f} records/s"
    return f"identity of {length} characters, {what}: {size / records:.0f} bytes a record{rate}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--lengths", type=int, nargs="*", default=[13, 20, 36])
    given = parser.parse_args()
    with own_database(postgresql()) as url:
        engine = make_engine(url.render_as_string(hide_password=False))
        try:
            for length in given.lengths:
                print("\n".join(measure(engine, given.records, length)), flush=True)
        finally:
            engine.dispose()


if __name__ == "__main__":
    main()
