"""Measures how long each page of the dashboard takes on a large ledger in PostgreSQL, letters and records made by the database.

    python -m benchmarks.runs.dashboard_pages --records 10000000 --letters 1000000

The database is that of ONCEMQ_TEST_POSTGRESQL; a database of its own is created in it and dropped. Each page is asked for three
times; the first answer and the median of the others are printed, in ms, with the size of the page.
"""

import argparse
import asyncio
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter

import httpx
from benchmarks.stage.servers import own_database, postgresql
from sqlalchemy import Engine, text

from oncemq.dashboard import create_app
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.messages import dead_letters
from oncemq.message import headers as names
from oncemq.message.envelope import Message

SCOPE = "shop.points"
TIMES = 3
APP = """\
app: shop
brokers: {{main: {{url: "embedded:///{folder}/broker.db"}}}}
database: {{url: "{database}"}}
topics:
  order.paid: {{key: body.order, identity: body.payment, strategies: [unique_key]}}
consumers:
  points: {{topic: order.paid, handler: "handlers:note"}}
"""
PAGES = (
    "/",
    "/api/overview",
    "/dead-letters",
    "/dead-letters?of=points&after=ledger-10000",
    "/dead-letters?of=points&after=ledger-{last}",
    "/dead-letters?error=unheard",
    "/dead-letters/one?consumer=points&id=ledger-{last}",
    "/waiting",
    "/audit",
    "/configuration",
    "/dead-letters?group=1",
    "/key?key=order-49",
)
RECORDS = text(
    "INSERT INTO oncemq_processed (consumer, identity, key, processed_at) "
    "SELECT :scope, 'payment-' || lpad(n::text, 9, '0'), 'order-' || n / 2, now() - make_interval(secs => (:records - n) / 100.0) "
    "FROM generate_series(1, :records) AS n"
)
LETTERS = text(
    "INSERT INTO oncemq_dead_letters (consumer, topic, attempt, envelope, body, published_at, dead_at) "
    "SELECT l.consumer, l.topic, l.attempt, replace(l.envelope, 'order-0', 'order-' || n), l.body, l.published_at, now() "
    "FROM oncemq_dead_letters AS l, generate_series(2, :letters) AS n"
)


def fill(engine: Engine, records: int, letters: int) -> int:
    """Insert the rows; returns the number of the last dead letter."""
    message = Message("order.paid", b'{"order": "order-0", "payment": "p"}', "m1")
    ours = {names.KEY: "order-0", names.REASON: "rejected", names.ERROR_TEXT: "no such account"}
    with engine.begin() as connection:
        dead_letters.add(connection, SCOPE, message, ours, datetime.now(UTC))
        connection.execute(LETTERS, {"letters": letters})
        connection.execute(RECORDS, {"scope": SCOPE, "records": records})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
        return int(connection.execute(text("SELECT max(id) FROM oncemq_dead_letters")).scalar_one())


async def measure(app: Path, last: int) -> None:
    """Print a line for each page."""
    transport = httpx.ASGITransport(create_app(app), client=("127.0.0.1", 50_000))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://127.0.0.1:8088", timeout=600
    ) as client:
        for page in PAGES:
            taken = []
            for _ in range(TIMES):
                began = perf_counter()
                answer = await client.get(page.format(last=last))
                taken.append((perf_counter() - began) * 1000)
            print(
                f"{page:<52} first {taken[0]:8.0f} ms, then {median(taken[1:]):8.0f} ms, "
                f"status {answer.status_code}, {len(answer.content):,} bytes",
                flush=True,
            )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--letters", type=int, default=1_000_000)
    given = parser.parse_args()
    with own_database(postgresql()) as mine, tempfile.TemporaryDirectory() as folder:
        url = mine.render_as_string(hide_password=False)
        engine = make_engine(url)
        schema.create(engine)
        began = perf_counter()
        last = fill(engine, given.records, given.letters)
        print(
            f"{given.records:,} records and {given.letters:,} dead letters in {perf_counter() - began:.0f} s",
            flush=True,
        )
        engine.dispose()
        Path(folder, "handlers.py").write_text("def note(order: dict) -> None: ...\n")
        app = Path(folder, "app.yaml")
        app.write_text(APP.format(folder=folder, database=url))
        asyncio.run(measure(app, last))


if __name__ == "__main__":
    main()
