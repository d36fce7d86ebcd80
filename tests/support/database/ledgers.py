"""Fresh databases with the ledger's tables and the test's own."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Column, Engine, MetaData, String, Table

from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine

BOOKED = MetaData()
"""A table in which a payment that is booked twice stands twice."""

Table("payments", BOOKED, Column("id", String(40)))


@contextmanager
def ledger_engine(url: str, *own: MetaData) -> Iterator[Engine]:
    """Lend an engine on an empty database, in which the ledger's tables and one's own are made."""
    engine = make_engine(url)
    try:
        schema.create(engine)
        for metadata in own:
            metadata.create_all(engine)
        yield engine
    finally:
        engine.dispose()
