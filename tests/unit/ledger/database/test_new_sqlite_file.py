"""A new SQLite file that many open at the same moment."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event, Thread

import pytest

from oncemq.common.sqlite_files import write_ahead


def opened(path: Path, timeout: float = 0.0) -> sqlite3.Connection:
    """Return a connection whose statements do not wait for locks."""
    return sqlite3.connect(path, isolation_level=None, timeout=timeout, check_same_thread=False)


def test_all_of_them_get_its_write_ahead_log(tmp_path: Path) -> None:
    """SQLite refuses all but one of those that change the file's mode at once."""
    together = Barrier(8)

    def change(number: int) -> str:
        connection = opened(tmp_path / f"{number // 8}.db")
        together.wait(30)
        try:
            write_ahead(connection, 30.0)
            return str(connection.execute("PRAGMA journal_mode").fetchone()[0])
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(change, range(80))) == ["wal"] * 80


def test_a_file_that_is_locked_is_tried_until_it_is_free(tmp_path: Path) -> None:
    """However long that takes, within the time given."""
    holder, free = opened(tmp_path / "a.db"), Event()
    holder.execute("BEGIN EXCLUSIVE")

    def end() -> None:
        free.wait(30)
        holder.execute("ROLLBACK")

    ender = Thread(target=end)
    ender.start()
    connection = opened(tmp_path / "a.db")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        write_ahead(connection, 0.0)
    free.set()
    write_ahead(connection, 30.0)
    ender.join()
    for each in (connection, holder):
        each.close()


def test_another_error_is_raised_at_once(tmp_path: Path) -> None:
    """Such as that of a file which is no database."""
    (tmp_path / "a.db").write_bytes(b"no database" * 100)
    connection = opened(tmp_path / "a.db")
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        write_ahead(connection, 30.0)
    connection.close()
