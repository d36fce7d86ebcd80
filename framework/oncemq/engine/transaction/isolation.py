"""Isolates messages that may not share a transaction, and proves that a transaction is still the one that began.

Statements that change settings of the connection, or bypass SQLAlchemy, would affect the neighbours of their unit.
Such a message is detected before its statement is sent; its unit is rolled back, and it runs in a transaction of its own,
whose connection is reset afterwards.
"""

from collections.abc import Sequence

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from oncemq.contracts.unit import Item, Run
from oncemq.errors import HandlerFault, SessionOwned

_OFTEN = 0.1
_SELDOM = 0.02


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


class IsolationRate:
    """Tracks how often messages had to run alone; if often, they do so at once.

    Args:
        always: the consumer requires it.
    """

    __slots__ = ("_rate", "always", "at_once")

    def __init__(self, *, always: bool = False) -> None:
        self.always = always
        self.at_once = always
        self._rate = 0.0

    def learn(self, *, items: int, needed: int) -> None:
        """Record `items` that ran, of which `needed` had to be alone."""
        self._rate += min(1.0, 0.02 * items) * (needed / items - self._rate)
        self.at_once = self.always or self._rate >= (_SELDOM if self.at_once else _OFTEN)


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


class Home:
    """Where the framework's own tables are found, and by which user; a handler may have changed both.

    Args:
        connection: a connection on which no setting was changed yet.
    """

    __slots__ = ("_connection", "_way")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._way: tuple[str, tuple[str, ...]] | None = None
        if connection.dialect.name == "postgresql":
            asked = "SELECT current_setting('search_path'), current_setting('role')"
            path, role = connection.exec_driver_sql(asked).one()
            statement = "SELECT set_config('role', %s, true), set_config('search_path', %s, true)"
            self._way = statement, (role, path)
        elif connection.dialect.name in {"mysql", "mariadb"}:
            name = connection.exec_driver_sql("SELECT DATABASE()").scalar_one()
            self._way = f"USE {connection.dialect.identifier_preparer.quote(name)}", ()

    def come_back(self) -> None:
        """Make the framework's next statements use its own tables."""
        if self._way is not None:
            self._connection.exec_driver_sql(*self._way)
