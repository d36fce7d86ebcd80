"""Opens SQLite files that several processes may open at the same moment."""

from time import monotonic, sleep
from typing import Any, Final

_PAUSE: Final = 0.005


def write_ahead(connection: Any, seconds: float) -> None:
    """Have a file written by a write-ahead log, which readers do not wait for.

    Another process that changes a new file to it makes this fail at once, whatever the connection's time-out for locks; so it
    is tried again.

    Args:
        connection: a connection of `sqlite3`, or one that executes statements alike.
        seconds: how long another process may hold the file.

    Raises:
        Exception: the driver's own error: the file cannot be written, or was locked for so long.
    """
    end = monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        except Exception as error:
            if "locked" not in str(error) or monotonic() > end:
                raise
            sleep(_PAUSE)
        else:
            return
