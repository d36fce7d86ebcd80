"""Effects of handlers in the suite: an append-only table without constraints, which can show a duplicate effect."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.orm import Session
from sqlalchemy.types import TypeDecorator, TypeEngine

from oncemq.ledger.sql.column_types import MYSQL_NAMES

TABLE = Table(
    "effects",
    MetaData(),
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
    Column("scope", String(100), nullable=False),
    Column("entity", String(100), nullable=False),
    Column("number", Integer, nullable=False),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)


class Name(TypeDecorator[str]):
    """A user's text column, in which `a`, `A` and `a ` are three names on every database."""

    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return VARCHAR(100), in a collation that neither folds nor pads where the default does."""
        if dialect.name not in MYSQL_NAMES:
            return dialect.type_descriptor(String(100))
        exact = "utf8mb4_nopad_bin" if getattr(dialect, "is_mariadb", False) else "utf8mb4_0900_bin"
        return dialect.type_descriptor(String(100, collation=exact))


def entities_name(scope: str) -> str:
    """Return the name of a scope's own table of entities."""
    return "entities_" + scope.replace(".", "_")


def entities(scope: str, key_type: TypeEngine[Any] | None = None) -> Table:
    """Return a table like a user's, for strategies that work on one; its key column compares exactly by default."""
    return Table(
        entities_name(scope),
        MetaData(),
        Column("entity", Name() if key_type is None else key_type, primary_key=True),
        Column("number", Integer, nullable=False),
        Column("version", Integer),
        Column("state", String(20)),
        Column("blocked", Integer),
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )


def touch(session: Session, table: Table, body: Any) -> None:
    """Insert the entity's row, or change it."""
    ours = table.c.entity == body["id"]
    if session.execute(select(table.c.number).where(ours)).first() is None:
        session.execute(insert(table).values(entity=body["id"], number=body["n"]))
    else:
        session.execute(update(table).where(ours).values(number=body["n"]))


def create(engine: Engine) -> None:
    """Create the table."""
    TABLE.create(engine, checkfirst=True)


def add(session: Session, scope: str, body: Any) -> None:
    """Write a message's effect."""
    session.execute(insert(TABLE).values(scope=scope, entity=body["id"], number=body["n"]))


def of(engine: Engine, scope: str) -> list[tuple[str, int]]:
    """Return every effect in a scope, in the order in which they were written."""
    with engine.connect() as connection:
        ours = select(TABLE.c.entity, TABLE.c.number).where(TABLE.c.scope == scope).order_by(TABLE.c.id)
        return [(row.entity, row.number) for row in connection.execute(ours)]


def count_rows(engine: Engine, tables: Sequence[Table], scope: str) -> int:
    """Return the number of a consumer's rows in these tables together."""
    with engine.connect() as connection:
        return sum(
            connection.execute(
                select(func.count()).select_from(table).where(table.c.consumer == scope)
            ).scalar_one()
            for table in tables
        )
