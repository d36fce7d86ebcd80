"""Faults of a database to order: statements that fail, commits that fail, and commits whose answer is lost."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import Engine, event


class DatabaseFaults:
    """Stands between SQLAlchemy and the driver of one engine.

    Attributes:
        conflicts: so many statements from now on fail as if a rival had been faster.
        commits_fail: so many commits from now on fail and roll back, as if the connection were lost.
        answers_lost: so many commits from now on succeed, and the connection is lost before anybody hears of it.
        seen: how often each kind of fault has really happened.
    """

    def __init__(self, engine: Engine) -> None:
        self.reset()
        self.seen = {"conflicts": 0, "commits_fail": 0, "answers_lost": 0}
        self._postgresql = engine.dialect.name == "postgresql"
        self._engine = engine
        for name, listener in self._listeners():
            event.listen(engine, name, listener)
        dialect: Any = engine.dialect
        self._commit = dialect.do_commit
        dialect.do_commit = self._commit_or_fail

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Let the test itself read without any fault."""
        ordered = self.conflicts, self.commits_fail, self.answers_lost
        self.reset()
        yield
        self.conflicts, self.commits_fail, self.answers_lost = ordered

    def remove(self) -> None:
        """Stand aside."""
        for name, listener in self._listeners():
            event.remove(self._engine, name, listener)
        dialect: Any = self._engine.dialect
        dialect.do_commit = self._commit

    def _listeners(self) -> list[tuple[str, Any]]:
        return [
            ("do_execute", self._execute),
            ("do_executemany", self._execute),
            ("do_execute_no_params", self._execute_plain),
        ]

    def reset(self) -> None:
        """Let everything go well from now on."""
        self.conflicts = 0
        self.commits_fail = 0
        self.answers_lost = 0

    def _execute(self, cursor: Any, statement: str, parameters: Any, context: Any) -> None:
        self._fail_statement(statement)

    def _execute_plain(self, cursor: Any, statement: str, context: Any) -> None:
        self._fail_statement(statement)

    def _fail_statement(self, statement: str) -> None:
        # The names of savepoints and the first look at the database are no statements of a unit.
        if self.conflicts and not statement.startswith(("SELECT 1", "SAVEPOINT", "ROLLBACK", "RELEASE")):
            self.conflicts -= 1
            self.seen["conflicts"] += 1
            raise self._conflict()

    def _commit_or_fail(self, connection: Any) -> None:
        if self.commits_fail:
            self.commits_fail -= 1
            self.seen["commits_fail"] += 1
            raise self._lost()
        self._commit(connection)
        if self.answers_lost:
            self.answers_lost -= 1
            self.seen["answers_lost"] += 1
            raise self._lost()

    def _conflict(self) -> Exception:
        if self._postgresql:
            return psycopg.errors.SerializationFailure("could not serialize access")
        return _sqlite("database is locked", sqlite3.SQLITE_BUSY)

    def _lost(self) -> Exception:
        if self._postgresql:
            return psycopg.OperationalError("server closed the connection unexpectedly")
        return _sqlite("disk I/O error", sqlite3.SQLITE_IOERR)


def _sqlite(text: str, code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error
