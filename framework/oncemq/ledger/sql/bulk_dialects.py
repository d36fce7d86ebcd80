"""Chooses the bulk implementation of a database."""

from sqlalchemy import Dialect

from oncemq.ledger.sql.bulk import Bulk, Shape
from oncemq.ledger.sql.bulk_mysql import MariaDBBulk, MySQLBulk
from oncemq.ledger.sql.bulk_text import PostgreSQLBulk, SQLiteBulk


def bulk_for(dialect: Dialect, shape: Shape) -> Bulk:
    """Return the implementation for the dialect of an open connection, which knows the server type."""
    if dialect.name == "postgresql":
        return PostgreSQLBulk(dialect, shape)
    if dialect.name == "sqlite":
        return SQLiteBulk(dialect, shape)
    return MariaDBBulk(dialect, shape) if getattr(dialect, "is_mariadb", False) else MySQLBulk(dialect, shape)
