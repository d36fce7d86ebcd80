"""Group commit, and what failing transactions do to each other."""

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest

from oncemq.errors import BrokerError, BrokerRefused, BrokerUnavailable
from oncemq_adapters.embedded.database import Database
from oncemq_adapters.embedded.errors import StoreGone, broker_error
from oncemq_adapters.embedded.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return settings of a file that does not exist yet."""
    return Settings(tmp_path / "broker.db", lock_timeout=timedelta(milliseconds=100))


@pytest.fixture
def database(settings: Settings) -> Iterator[Database]:
    """Lend a database with one table `t`."""
    database = Database(settings, create=True)
    database.write(lambda connection: connection.execute("CREATE TABLE t (a INTEGER)"))
    yield database
    database.close()


def insert(connection: sqlite3.Connection) -> None:
    """Write one row."""
    connection.execute("INSERT INTO t VALUES (1)")


def count(database: Database) -> int:
    """Return how many rows there are."""
    return database.read(lambda connection: connection.execute("SELECT count(*) FROM t").fetchone()[0])


def test_waiting_threads_share_a_commit(database: Database):
    """What eight threads ask for while a transaction runs is committed in one."""
    running, go = Event(), Event()

    def slow(connection: sqlite3.Connection) -> None:
        running.set()
        assert go.wait(10)
        insert(connection)

    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(database.write, slow)
        assert running.wait(10)
        before = database.commits
        others = [pool.submit(database.write, insert) for _ in range(8)]
        while len(database._waiting) < 8:
            Event().wait(0.005)
        go.set()
        for job in (first, *others):
            job.result(10)
    assert database.commits - before == 2
    assert count(database) == 9


def test_failing_work_leaves_its_neighbours_alone(database: Database):
    """A job that raises is rolled back alone; those that shared its transaction are committed."""
    running, go = Event(), Event()

    def slow(connection: sqlite3.Connection) -> None:
        running.set()
        assert go.wait(10)

    def bad(connection: sqlite3.Connection) -> None:
        insert(connection)
        raise ValueError("mine")

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(database.write, slow)
        assert running.wait(10)
        good, failing, last = (pool.submit(database.write, work) for work in (insert, bad, insert))
        while len(database._waiting) < 3:
            Event().wait(0.005)
        go.set()
        for job in (first, good, last):
            job.result(10)
        with pytest.raises(ValueError, match="mine"):
            failing.result(10)
    assert count(database) == 2


def test_interrupt_leaves_no_caller_waiting(database: Database):
    """An interrupt in the thread that commits for others is an error to them, not a wait without end."""
    running, go = Event(), Event()

    def slow(connection: sqlite3.Connection) -> None:
        running.set()
        assert go.wait(10)

    def interrupted(connection: sqlite3.Connection) -> None:
        insert(connection)
        raise KeyboardInterrupt

    def run(work: Callable[[sqlite3.Connection], None]) -> BaseException | None:
        try:
            database.write(work)
        except BaseException as error:
            return error
        return None

    with ThreadPoolExecutor(3) as pool:
        pool.submit(run, slow)
        assert running.wait(10)
        answers = [pool.submit(run, work) for work in (insert, interrupted)]
        while len(database._waiting) < 2:
            Event().wait(0.005)
        go.set()
        kinds = {type(answer.result(10)) for answer in answers}
    assert kinds <= {KeyboardInterrupt, BrokerUnavailable}
    assert count(database) == 0
    database.write(insert)
    assert count(database) == 1


def test_foreign_commits_are_noticed(database: Database, settings: Settings):
    """`changed` tells of others' commits once, and not of our own."""
    database.changed()
    database.write(insert)
    assert not database.changed()
    other = Database(settings, create=False)
    other.write(insert)
    other.close()
    assert database.changed()
    assert not database.changed()


def test_locked_file_is_unavailable(database: Database, settings: Settings):
    """A writer that keeps the file for longer than lock_timeout makes us say so; afterwards all is well."""
    rival = sqlite3.connect(settings.path, isolation_level=None)
    rival.execute("BEGIN IMMEDIATE")
    with pytest.raises(BrokerUnavailable, match="lock_timeout") as caught:
        database.write(insert)
    assert not isinstance(caught.value, StoreGone)
    rival.execute("COMMIT")
    rival.close()
    database.write(insert)
    assert count(database) == 1


def test_full_disk_is_unavailable_and_changes_nothing(database: Database):
    """When there is no more room the transaction fails as a whole, in words; with room again it works."""
    connection = database._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 1}")

    def much(connection: sqlite3.Connection) -> None:
        insert(connection)
        connection.execute("CREATE TABLE IF NOT EXISTS big (b BLOB)")
        connection.execute("INSERT INTO big VALUES (zeroblob(100000))")

    with pytest.raises(BrokerUnavailable, match="disk is full"):
        database.write(much)
    assert count(database) == 0
    connection.execute("PRAGMA max_page_count = 100000")
    database.write(much)
    assert count(database) == 1


def test_deleted_file_is_noticed_before_writing(database: Database, settings: Settings):
    """Nothing is written into a file that no one can find any more."""
    assert settings.path is not None
    settings.path.unlink()
    with pytest.raises(StoreGone, match="has gone"):
        database.write(insert)
    with pytest.raises(StoreGone, match="has gone"):
        database.changed()


def test_publishing_is_flushed_and_settling_is_not(database: Database):
    """Only durable work pays for a disk flush."""

    def level(connection: sqlite3.Connection) -> int:
        return connection.execute("PRAGMA synchronous").fetchone()[0]

    assert database.write(level, durable=True) == 2
    assert database.write(level) == 1


def test_without_power_safety_nothing_is_flushed(tmp_path: Path):
    """`power_safe: false` never flushes."""
    database = Database(Settings(tmp_path / "x.db", power_safe=False), create=True)
    level = database.write(lambda one: one.execute("PRAGMA synchronous").fetchone()[0], durable=True)
    database.close()
    assert level == 1


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (sqlite3.SQLITE_BUSY, BrokerUnavailable, "lock_timeout"),
        (sqlite3.SQLITE_FULL, BrokerUnavailable, "disk is full"),
        (sqlite3.SQLITE_IOERR, StoreGone, "look at the disk"),
        (sqlite3.SQLITE_CANTOPEN, StoreGone, "folder must exist"),
        (sqlite3.SQLITE_READONLY, BrokerRefused, "may not write"),
        (sqlite3.SQLITE_READONLY_RECOVERY, BrokerRefused, "may not write"),
        (sqlite3.SQLITE_READONLY_DBMOVED, StoreGone, "moved away"),
        (sqlite3.SQLITE_NOTADB, BrokerRefused, "not a SQLite database"),
        (sqlite3.SQLITE_CORRUPT, BrokerRefused, "damaged"),
        (sqlite3.SQLITE_MISUSE, StoreGone, "reports an error"),
    ],
)
def test_each_error_has_a_meaning(code: int, kind: type[BrokerError], words: str):
    """Extended codes mean what their primary code means; every error names the file."""
    error = sqlite3.OperationalError("native text")
    error.sqlite_errorcode = code
    translated = broker_error(error, "/var/lib/shop.db")
    assert type(translated) is kind
    assert words in str(translated)
    assert "/var/lib/shop.db" in str(translated)
