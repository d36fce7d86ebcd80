"""Size of the ledger on disk, as the database reports it: cheap, and not exact."""

from typing import Final

from sqlalchemy import Connection, text

from oncemq.ledger.sql.column_types import MYSQL_NAMES
from oncemq.ledger.sql.tables import PREFIX

_POSTGRESQL: Final = text(
    "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c "
    "WHERE c.relkind = 'r' AND left(c.relname, :length) = :prefix AND pg_table_is_visible(c.oid)"
)
_MYSQL: Final = text(
    "SELECT coalesce(sum(data_length + index_length), 0) FROM information_schema.tables "
    "WHERE table_schema = database() AND left(table_name, :length) = :prefix"
)
_SQLITE: Final = text(
    "SELECT (page_count - freelist_count) * page_size "
    "FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()"
)


def stored_bytes(connection: Connection) -> int:
    """Return the bytes of the ledger's tables and indexes in this database; of SQLite those of the whole file.

    Args:
        connection: for reading.
    """
    name = connection.dialect.name
    if name not in {"postgresql", *MYSQL_NAMES}:
        return int(connection.execute(_SQLITE).scalar_one())
    found = _POSTGRESQL if name == "postgresql" else _MYSQL
    return int(connection.execute(found, {"prefix": PREFIX, "length": len(PREFIX)}).scalar_one())
