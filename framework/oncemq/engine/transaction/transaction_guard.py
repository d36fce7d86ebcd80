"""Isolates messages that may not share a transaction, and proves that a transaction is still the one that began.

Statements that change settings of the connection, or bypass SQLAlchemy, would affect the neighbours of their unit.
Such a message is detected before its statement is sent; its unit is rolled back, and it runs in a transaction of its own,
whose connection is reset afterwards.
"""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from oncemq.contracts.unit import Item, Run
from oncemq.errors import HandlerFault, SessionOwned
from oncemq.ledger.sql.column_types import MYSQL_NAMES
from oncemq.retry.classify import Fault, classify

_RESTORING: Final = "oncemq_home"
_POSTGRESQL_SETTINGS: Final = (
    *("session_authorization", "role", "search_path", "row_security", "statement_timeout", "lock_timeout"),
    *("client_encoding", "bytea_output", "DateStyle", "IntervalStyle", "TimeZone"),
)
_MYSQL_SETTINGS: Final = (
    *("character_set_client", "character_set_results", "collation_connection", "sql_mode", "time_zone"),
    *("innodb_lock_wait_timeout", "foreign_key_checks", "unique_checks"),
)
_LOST: Final = frozenset({Fault.TRANSIENT, Fault.OFFLINE})


class NeedsIsolation(HandlerFault):
    """A handler is about to affect other messages: the run is rolled back, and these items run alone.

    Args:
        why: the reason.
        items: of the call; filled in once known.
    """

    def __init__(self, why: str, items: Sequence[Item] = ()) -> None:
        super().__init__(f"{why}: it runs in a transaction of its own")
        self.why = why
        self.items = items


class HiddenCommit(SessionOwned):
    """A handler ended the transaction in a hidden way; everything before that is saved.

    Args:
        run: its run.
        items: those of the call.
    """

    def __init__(self, run: Run, items: Sequence[Item]) -> None:
        super().__init__(
            "the handler ended its transaction past the framework (the driver's commit, a procedure that commits, a "
            "statement behind a semicolon): what it had written before may be saved, and would be doubled by another try"
        )
        self.run = run
        self.items = items


class Proof:
    """A savepoint that lasts exactly as long as the transaction in which it was set.

    Args:
        connection: in its transaction.
        token: a unique name.
    """

    __slots__ = ("_connection", "_name")

    def __init__(self, connection: Connection, token: str) -> None:
        self._connection = connection
        self._name = f"oncemq_{token}"
        connection.exec_driver_sql(f"SAVEPOINT {self._name}")

    def holds(self) -> bool:
        """Return whether the transaction is still the one that began; releases the savepoint."""
        return self._exists("RELEASE SAVEPOINT")

    def held(self) -> bool:
        """Return the same after a failure; rolls back to the savepoint."""
        return self._exists("ROLLBACK TO SAVEPOINT")

    def broken_by(self, error: Exception) -> bool:
        """Return whether a handler that failed with `error` had ended the transaction in a hidden way."""
        # A roll-back by SQLAlchemy itself, after a failed flush, is not hidden; nor is a lost connection,
        # or a deadlock that makes MySQL roll back everything.
        lost = classify(error.__cause__ or error) in _LOST
        return not lost and self._connection.in_transaction() and not self.held()

    def _exists(self, doing: str) -> bool:
        connection = self._connection
        if connection.closed or connection.invalidated:
            return True
        try:
            connection.exec_driver_sql(f"{doing} {self._name}")
        except DBAPIError as error:
            # A lost connection has lost its transaction as well.
            return error.connection_invalidated
        return True


class SavedSettings:
    """The settings under which the framework's own statements find their tables and mean what they say.

    A handler alone in its transaction may change any of them. The framework's statements name no schema: they are sent as if
    the handler had changed nothing, by the same user, with the same notion of time and text.

    Args:
        connection: in a transaction, on which no setting was changed yet.
    """

    __slots__ = ("_connection", "_statements")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # Asked once for each of the driver's connections: they are as new when others get them.
        if _RESTORING not in connection.info:
            connection.info[_RESTORING] = _restoring_statements(connection)
        self._statements: Sequence[tuple[str, tuple[Any, ...]]] = connection.info[_RESTORING]

    def restore(self) -> None:
        """Make the framework's next statements use its own tables."""
        for statement, values in self._statements:
            self._connection.exec_driver_sql(statement, values)


def _restoring_statements(connection: Connection) -> Sequence[tuple[str, tuple[Any, ...]]]:
    if connection.dialect.name == "postgresql":
        asked = ", ".join(f"current_setting('{name}')" for name in _POSTGRESQL_SETTINGS)
        values = connection.exec_driver_sql(f"SELECT {asked}").one()
        back = ", ".join(f"set_config('{name}', %s, true)" for name in _POSTGRESQL_SETTINGS)
        return [(f"SELECT {back}", tuple(values))]
    if connection.dialect.name in MYSQL_NAMES:
        asked = ", ".join(f"@@session.{name}" for name in _MYSQL_SETTINGS)
        database, *settings_now = connection.exec_driver_sql(f"SELECT DATABASE(), {asked}").one()
        back = ", ".join(f"{name} = %s" for name in _MYSQL_SETTINGS)
        settings = (f"SET SESSION {back}", tuple(settings_now))
        if database is None:
            return [settings]
        return [(f"USE {connection.dialect.identifier_preparer.quote(database)}", ()), settings]
    return []
