"""A Galera cluster of MariaDB or MySQL, whose nodes all take writes: how its sessions are set up, and what is risky there."""

from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import Connection, text

_UNKNOWN_VARIABLE: Final = 1193

_EVERY_STATEMENT: Final = 7
"""Bits of wsrep_sync_wait: reads and BEGIN, UPDATE and DELETE, INSERT and REPLACE."""

_SEE_ALL_COMMITS: Final = f"SET SESSION wsrep_sync_wait = @@SESSION.wsrep_sync_wait | {_EVERY_STATEMENT}"

_SETTINGS: Final = text("SHOW VARIABLES WHERE Variable_name IN ('wsrep_on', 'wsrep_node_name')")

_WITHOUT_KEY: Final = text(
    "SELECT t.table_name FROM information_schema.tables t"
    " LEFT JOIN information_schema.table_constraints c ON c.table_schema = t.table_schema AND c.table_name = t.table_name"
    " AND c.constraint_type = 'PRIMARY KEY'"
    " WHERE t.table_schema = DATABASE() AND t.table_type = 'BASE TABLE' AND c.constraint_name IS NULL ORDER BY 1"
)


def set_up_session(cursor: Any) -> None:
    """Have each statement of a session see what any node has committed before; elsewhere this has no effect.

    Else a verdict, such as that a state does not fit, could come from a row that another node has changed already.

    Args:
        cursor: of the driver.
    """
    try:
        cursor.execute(_SEE_ALL_COMMITS)
    except Exception as error:
        if error.args[:1] != (_UNKNOWN_VARIABLE,):
            raise


def node_of(connection: Connection) -> str | None:
    """Return the name of the cluster's node that answers; None if the database is no Galera cluster."""
    found = {name.lower(): value for name, value in connection.execute(_SETTINGS)}
    return found.get("wsrep_node_name") if found.get("wsrep_on", "OFF").upper() == "ON" else None


def risks(connection: Connection) -> Iterator[str]:
    """Yield what is risky in this database as part of a cluster, one sentence each."""
    if node_of(connection) is None:
        return
    for table in connection.execute(_WITHOUT_KEY).scalars():
        yield (
            f"table {table} has no primary key: Galera applies DELETE to no row of it on other nodes, and its rows may stand in "
            f"another order there; add one, for example ALTER TABLE {table} ADD id BIGINT AUTO_INCREMENT PRIMARY KEY"
        )
