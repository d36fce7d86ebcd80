"""Lists the generations of each consumer: the table `oncemq_generations`."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Identity,
    Index,
    MetaData,
    Table,
    select,
    text,
)

from oncemq.ledger.records import processed
from oncemq.ledger.sql.column_types import ExactText, Moment
from oncemq.ledger.sql.tables import CONSUMER_SIZE, PREFIX, attach, ledger_table

TABLE = ledger_table(
    "generations",
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("consumer", ExactText(CONSUMER_SIZE), nullable=False),
    Column("legacy", Boolean, nullable=False),
    Column("opened_at", Moment, nullable=False),
    Column("sealed_at", Moment),
    Column("retired_at", Moment),
)
"""One row for each generation; `legacy` is the consumer's part of `oncemq_processed`, from before it had generations."""
Index("oncemq_generations_of", TABLE.c.consumer)
Index(
    "oncemq_generations_open",
    TABLE.c.consumer,
    unique=True,
    postgresql_where=TABLE.c.sealed_at.is_(None),
)

DIGEST: Final = "CAST(encode(substr(sha256(decode(replace({0}, chr(92), repeat(chr(92), 2)), 'escape')), 1, 16), 'hex') AS uuid)"
"""SQL of the 16 bytes by which an identity is found: half of its SHA-256, over its own bytes."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of a consumer.

    Args:
        number: never used twice.
        legacy: it is the consumer's part of the old table.
        opened_at: aware.
        sealed_at: aware; None while it is the open one.
        retired_at: aware; None while it is looked up.
    """

    number: int
    legacy: bool
    opened_at: datetime
    sealed_at: datetime | None = None
    retired_at: datetime | None = None

    @property
    def table(self) -> str:
        """The name of its table."""
        return f"{PREFIX}processed" if self.legacy else table_name(self.number)


def table_name(number: int) -> str:
    """Return the name of a generation's table."""
    return f"{PREFIX}processed_{number}"


def generations_of(connection: Connection, consumer: str, *, retired: bool = False) -> list[Generation]:
    """Return a consumer's live generations, the newest first; the open one is the first.

    Args:
        connection: any.
        consumer: the ledger scope.
        retired: those that wait to be dropped, too.
    """
    t = TABLE.c
    found = select(t.id, t.legacy, t.opened_at, t.sealed_at, t.retired_at).where(t.consumer == consumer)
    if not retired:
        found = found.where(t.retired_at.is_(None))
    return [Generation(*row) for row in connection.execute(found.order_by(t.id.desc()))]


def create_table(connection: Connection, number: int) -> None:
    """Create the table of a generation.

    The index is on the digest of the identity, so an entry has 16 bytes however long it is; a key is stored only where it differs.
    """
    name = table_name(number)
    connection.execute(
        text(
            f"CREATE TABLE {name} (processed_at timestamp with time zone NOT NULL,"
            ' identity text COLLATE "C" NOT NULL, key text COLLATE "C", fingerprint text COLLATE "C", result text)'
        )
    )
    # Filled to the brim where it is rebuilt; while it grows, pages split in halves whatever is said here.
    connection.execute(
        text(
            f"CREATE UNIQUE INDEX {name}_id ON {name} (({DIGEST.format('identity')})) WITH (fillfactor = 100)"
        )
    )
    # A few bytes for each megabyte: rows are in the order of their time.
    connection.execute(text(f"CREATE INDEX {name}_at ON {name} USING brin (processed_at)"))


def record_tables(metadata: MetaData, *, generations: bool) -> tuple[Table, ...]:
    """Return the tables that a strategy needs for records of applied messages."""
    tables = (processed.TABLE, TABLE) if generations else (processed.TABLE,)
    return tuple(attach(table, metadata) for table in tables)
