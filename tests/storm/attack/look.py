"""A connection by which a test looks again and again at the database under attack; one for each look would cost more than the attack."""

from collections.abc import Mapping
from threading import Lock
from typing import Any

from sqlalchemy import Connection, TextClause, create_engine
from sqlalchemy.exc import DBAPIError


class Look:
    """Keeps the connection between two looks, outside of any transaction.

    Args:
        url: the database, which may be killed and started again at any time.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = Lock()
        self._connection: Connection | None = None

    def scalar(self, query: TextClause, values: Mapping[str, Any]) -> int:
        """Return the number that a query finds; over a new connection where the server has ended the one of the last look."""
        with self._lock:
            if self._connection is not None:
                try:
                    return self._asked(self._connection, query, values)
                except DBAPIError:
                    self._close()
            engine = create_engine(self._url, isolation_level="AUTOCOMMIT")
            self._connection = engine.connect()
            return self._asked(self._connection, query, values)

    @staticmethod
    def _asked(connection: Connection, query: TextClause, values: Mapping[str, Any]) -> int:
        number = int(connection.execute(query, values).scalar_one())
        connection.commit()
        return number

    def close(self) -> None:
        """End the session; the next look begins another one."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()
            connection.engine.dispose()
