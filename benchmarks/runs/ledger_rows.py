"""Measures what a generation of many records costs on PostgreSQL: the inserts, `inspect KEY`, its size, its drop.

    python -m benchmarks.runs.ledger_rows --rows 50000000

Records have a key that differs from their identity, five to a key, as with `identity: [key, version]`. They are filled in by
the database, and the unique index is built afterwards. Inserts are 200 new identities a transaction, in turns on an empty ledger and on the
filled one, open and sealed. The database is that of ONCEMQ_TEST_POSTGRESQL; databases of their own are created and dropped.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from statistics import median
from time import monotonic, perf_counter

from benchmarks.stage.servers import own_database, postgresql
from sqlalchemy import Engine, text

from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.generations import records, registry, rotation
from oncemq.ledger.generations.bulk import GenerationBulk
from oncemq.ledger.records import processed
from oncemq.ledger.sql.bulk import Shape

SHAPE = Shape(processed.TABLE, "identity", "processed_at", inserted=("key",))
SCOPE = "bench.points"
TOGETHER = 200
UNITS = 100
ROUNDS = 5
PER_KEY = 5
STEP = 1_000_000


@contextmanager
def ledger() -> Iterator[Engine]:
    """Lend a fresh ledger with one open generation."""
    with own_database(postgresql()) as url:
        engine = make_engine(url.render_as_string(hide_password=False))
        try:
            schema.create(engine, [registry.TABLE])
            rotation.begin(engine, SCOPE)
            yield engine
        finally:
            engine.dispose()


def open_table(engine: Engine) -> str:
    """Return the name of the open generation's table."""
    with engine.connect() as connection:
        return registry.generations_of(connection, SCOPE)[0].table


def fill(engine: Engine, rows: int) -> str:
    """Fill the open generation; returns its table."""
    table = open_table(engine)
    with engine.begin() as connection:
        connection.execute(text(f"DROP INDEX {table}_id"))
    for start in range(0, rows, STEP):
        with engine.begin() as connection:
            connection.execute(
                text(
                    f"INSERT INTO {table} (processed_at, identity, key)"
                    " SELECT now(), 'k' || n / :each || '|' || n % :each, 'k' || n / :each"
                    " FROM generate_series(CAST(:first AS bigint), CAST(:last AS bigint)) AS n"
                ),
                {"each": PER_KEY, "first": start, "last": min(start + STEP, rows) - 1},
            )
    with engine.begin() as connection:
        digest = registry.DIGEST.format("identity")
        connection.execute(
            text(f"CREATE UNIQUE INDEX {table}_id ON {table} (({digest})) WITH (fillfactor = 100)")
        )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        # Else the dirty pages of the filling are written while the inserts are measured.
        connection.execute(text(f"VACUUM (ANALYZE) {table}"))
        connection.execute(text("CHECKPOINT"))
    return table


def inserted(engine: Engine, bulk: GenerationBulk, prefix: str) -> float:
    """Return the records a second of UNITS transactions with new identities."""
    began = perf_counter()
    for unit in range(UNITS):
        rows = sorted((f"{prefix} {unit} {number}", f"{prefix} {unit}") for number in range(TOGETHER))
        with engine.begin() as connection:
            fresh = bulk.insert_new(connection, SCOPE, rows, datetime.now(UTC))
        if len(fresh) != TOGETHER:
            raise RuntimeError(f"{len(fresh)} of {TOGETHER} identities were new")
    return UNITS * TOGETHER / (perf_counter() - began)


def compare(empty: Engine, full: Engine, what: str) -> None:
    """Print the rates in turns, and the median of their ratios."""
    bulks = [GenerationBulk(SHAPE, monotonic) for _ in range(2)]
    pairs = []
    for turn in range(ROUNDS + 1):
        pair = [
            inserted(engine, bulk, f"{what} {turn}")
            for engine, bulk in zip((empty, full), bulks, strict=True)
        ]
        pairs += [pair] if turn else []  # the first is for the caches
    rates = [median(column) for column in zip(*pairs, strict=True)]
    ratio = median(on_full / on_empty for on_empty, on_full in pairs)
    print(
        f"inserts, {what}: empty {rates[0]:,.0f}/s, filled {rates[1]:,.0f}/s, ratio {ratio:.2f}", flush=True
    )


def inspect(engine: Engine, rows: int, what: str) -> None:
    """Print the time of the look-up of keys that there are, and of one that there is not."""
    times = []
    for turn in range(ROUNDS):
        key = f"k{rows // PER_KEY * (turn + 1) // (ROUNDS + 1)}"
        for name, count in ((key, PER_KEY), ("absent", 0)):
            began = perf_counter()
            with engine.connect() as connection:
                found = records.of_key(connection, SCOPE, name)
            times.append((perf_counter() - began) * 1000)
            if len(found) != count:
                raise RuntimeError(f"{name}: {len(found)} records instead of {count}")
    print(f"look-up of a key, {what}: median {median(times):.1f} ms, worst {max(times):.1f} ms", flush=True)


def size(engine: Engine, table: str, what: str) -> None:
    """Print the bytes of a record by part."""
    with engine.connect() as connection:
        count = connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
        found = text("SELECT pg_relation_size(CAST(:name AS regclass))")
        names = text(
            "SELECT CAST(indexrelid AS regclass) FROM pg_index WHERE indrelid = CAST(:name AS regclass)"
        )
        parts = [table, *connection.execute(names, {"name": table}).scalars().all()]
        sizes = {part: connection.execute(found, {"name": part}).scalar_one() / count for part in parts}
    told = ", ".join(f"{part} {each:.1f}" for part, each in sizes.items())
    print(f"{what}: {sum(sizes.values()):.1f} bytes a record ({told})", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with ledger() as empty, ledger() as full:
        began = perf_counter()
        table = fill(full, rows)
        print(f"{rows:,} records filled in {perf_counter() - began:.0f} s", flush=True)
        size(full, table, "open generation")
        inspect(full, rows, "open generation")
        compare(empty, full, "into the filled generation")
        rotation.rotate(full, SCOPE, timedelta(0))
        began = perf_counter()
        rotation.compact(full, SCOPE)
        print(f"made compact in {perf_counter() - began:.0f} s", flush=True)
        size(full, table, "sealed generation")
        inspect(full, rows, "sealed generation")
        rotation.rotate(empty, SCOPE, timedelta(0))
        rotation.compact(empty, SCOPE)
        compare(empty, full, "beside the sealed generation")
        with full.begin() as connection:
            connection.execute(
                text(
                    "UPDATE oncemq_generations SET retired_at = now() WHERE NOT legacy AND sealed_at IS NOT NULL"
                )
            )
        began = perf_counter()
        dropped = rotation.drop_retired(full, SCOPE, after=timedelta(0))
        print(f"dropping {', '.join(dropped)}: {(perf_counter() - began) * 1000:.0f} ms", flush=True)


if __name__ == "__main__":
    main()
