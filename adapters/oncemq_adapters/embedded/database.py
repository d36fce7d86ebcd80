"""One connection to the file, used by all threads in turn, with one commit for all who wait (group commit)."""

import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

from oncemq.common.private_files import close_to_others
from oncemq.common.sqlite_files import write_ahead
from oncemq.errors import BrokerRefused, BrokerUnavailable
from oncemq_adapters.embedded.errors import StoreGone, broker_error
from oncemq_adapters.embedded.settings import Settings

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

_OLDEST = (3, 35, 0)
_TOGETHER = 64


class Job(Generic[T]):
    """A piece of work that waits for a transaction."""

    __slots__ = ("durable", "error", "finished", "result", "work")

    def __init__(self, work: Work[T], durable: bool) -> None:
        self.work = work
        self.durable = durable
        self.finished = False
        self.result: Any = None
        self.error: Exception | None = None

    def answer(self) -> T:
        """Return what the work returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        result: T = self.result
        return result


class Database:
    """Runs work in transactions; the first caller to get the connection commits for all waiting callers.

    Attributes:
        commits: how many write transactions were committed.
    """

    def __init__(self, settings: Settings, *, create: bool) -> None:
        self.commits = 0
        self._settings = settings
        self._waiting: deque[Job[Any]] = deque()
        self._mutex = Lock()
        self._flushes: bool | None = None
        try:
            self._connection = _connect(settings, create=create)
        except sqlite3.Error as error:
            raise broker_error(error, settings.place) from error
        self._file = self._file_now()
        self._seen = self._version()

    def write(self, work: Work[T], *, durable: bool = False) -> T:
        """Run `work` in a write transaction, together with whatever other threads ask for at this moment.

        Args:
            work: may be run a second time if the first transaction was rolled back.
            durable: the commit is flushed to the disk before this returns, if the broker is power-safe.

        Raises:
            BrokerError: nothing was changed.
        """
        job = Job(work, durable)
        self._waiting.append(job)
        with self._mutex:
            while not job.finished:
                self._run([self._waiting.popleft() for _ in range(min(len(self._waiting), _TOGETHER))])
        return job.answer()

    def read(self, work: Work[T]) -> T:
        """Run `work`, which only reads."""
        with self._mutex:
            try:
                self._check_file()
                return work(self._connection)
            except sqlite3.Error as error:
                raise broker_error(error, self._settings.place) from error

    def changed(self) -> bool:
        """Return whether another connection has committed since the last call; cheap enough for polling."""
        with self._mutex:
            self._check_file()
            before, self._seen = self._seen, self._version()
            return before != self._seen

    def close(self) -> None:
        """Close the connection; may be called twice."""
        with self._mutex:
            self._connection.close()

    def _run(self, jobs: list[Job[Any]]) -> None:
        try:
            results = self._transaction(jobs)
        except BrokerUnavailable as error:
            _fail(jobs, error)
        except Exception as error:
            if len(jobs) == 1:
                _fail(jobs, error)
            else:  # one of them is at fault: the others must not pay for it
                for job in jobs:
                    self._run([job])
        except BaseException:  # an interrupt hits one thread; those whose work it did must not wait for ever
            place = self._settings.place
            _fail(jobs, BrokerUnavailable(f"embedded broker {place}: interrupted; nothing was changed"))
            raise
        else:
            for job, result in zip(jobs, results, strict=True):
                job.result, job.finished = result, True

    def _transaction(self, jobs: list[Job[Any]]) -> list[Any]:
        connection = self._connection
        try:
            self._check_file()
            self._flush_commits(any(job.durable for job in jobs) and self._settings.power_safe)
            connection.execute("BEGIN IMMEDIATE")
            self._check_file()  # again: the file may have been replaced while we waited for its lock
            results = [job.work(connection) for job in jobs]
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise broker_error(error, self._settings.place) from error
        except BaseException:
            self._roll_back()
            raise
        self.commits += 1
        return results

    def _roll_back(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise StoreGone(f"embedded broker {self._settings.place}: {error}") from error

    def _flush_commits(self, flush: bool) -> None:
        # In WAL mode a NORMAL commit survives a crash of the process, a FULL one also that of the machine.
        # A settlement may be lost with the machine (the message is redelivered); a publication may not.
        if flush is not self._flushes:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if flush else 'NORMAL'}")
            self._flushes = flush

    def _version(self) -> int:
        try:
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error as error:
            raise broker_error(error, self._settings.place) from error
        return int(version)

    def _file_now(self) -> tuple[int, int] | None:
        if self._settings.path is None:
            return None
        try:
            found = self._settings.path.stat()
        except OSError as error:
            raise StoreGone(
                f"embedded broker {self._settings.place}: the file has gone ({error.strerror})"
            ) from error
        return (found.st_dev, found.st_ino)

    def _check_file(self) -> None:
        # A deleted file stays writable for those who have it open: messages would be confirmed into nothing.
        if self._file_now() != self._file:
            raise StoreGone(f"embedded broker {self._settings.place}: the file was replaced by another one")


def _fail(jobs: list[Job[Any]], error: Exception) -> None:
    for job in jobs:
        job.error, job.finished = error, True


def _make_private(path: Path, *, create: bool) -> None:
    """Make the file private, since it holds message bodies; SQLite gives its other files the same mode."""
    with suppress(OSError):  # SQLite says what is wrong
        if create or path.exists():
            close_to_others(path)
        for other in (path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
            if other.exists():
                close_to_others(other)


def _connect(settings: Settings, *, create: bool) -> sqlite3.Connection:
    if sqlite3.sqlite_version_info < _OLDEST:
        raise BrokerRefused(
            f"embedded broker: SQLite {sqlite3.sqlite_version} is too old, 3.35 or newer is needed"
        )
    if settings.path is None:
        uri = f"file:/oncemq-{settings.memory.encode().hex()}?vfs=memdb"
    else:
        uri = f"{settings.path.as_uri()}?mode={'rwc' if create else 'rw'}"
        _make_private(settings.path, create=create)
    connection = sqlite3.connect(
        uri,
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=settings.lock_timeout.total_seconds(),
    )
    try:
        write_ahead(connection, settings.lock_timeout.total_seconds())
        connection.execute("PRAGMA temp_store = MEMORY")
    except BaseException:
        connection.close()
        raise
    return connection
