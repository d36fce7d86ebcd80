"""Watches a run's connection while handlers work: statements, errors, and unauthorized ends of the transaction.

Engine events report: every statement is counted, every database error that rolled back more than its statement dooms the run,
and ending the transaction past the session is refused. A statement that would affect others of the unit is not sent:
its message runs alone (`oncemq.engine.transaction.transaction_guard`).
"""

import re
from asyncio import Task, current_task
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from threading import get_ident
from time import monotonic
from typing import Any, Final

from sqlalchemy import Connection, Engine, ExceptionContext, NestedTransaction, PoolProxiedConnection, event

from oncemq.contracts.unit import Item
from oncemq.engine.transaction.setting_routines import called, setting_routines
from oncemq.engine.transaction.transaction_guard import NeedsIsolation
from oncemq.errors import HandlerFault, SessionOwned
from oncemq.retry.classify import Fault, classify


class Kind(Enum):
    """The effect of a statement on later ones."""

    READ = "read"
    """It has no effect."""
    WRITE = "write"
    """It may change rows or tables, which ends with the transaction."""
    SETS = "sets"
    """It may leave settings, locks or names on the connection, or its effect is not visible in its text."""
    ENDS = "ends"
    """It ends the transaction."""


_READS: Final = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "SHOW", "EXPLAIN", "DESCRIBE", "DESC"})
_PLAIN: Final = _READS | {
    *("INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE", "SAVEPOINT", "RELEASE", "ROLLBACK", "TRUNCATE"),
    *("LOCK", "CREATE", "ALTER", "DROP", "COMMENT", "ANALYZE", "REINDEX", "GRANT", "REVOKE", "REFRESH"),
}
_ENDS_TRANSACTION: Final = frozenset({"COMMIT", "ROLLBACK", "BEGIN", "START", "END", "ABORT"})
_ENDS_IT_ON_MYSQL: Final = frozenset(
    {
        *("CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME", "LOCK", "UNLOCK", "GRANT", "REVOKE"),
        *("ANALYZE", "OPTIMIZE", "REPAIR", "FLUSH", "XA"),
    }
)
_MYSQL: Final = frozenset({"mysql", "mariadb"})
_TEMPORARY: Final = frozenset({"TEMP", "TEMPORARY"})
_BEFORE_WORD = re.compile(r"(?:[\s;(]|--[^\n]*(?:\n|$)|#[^\n]*(?:\n|$)|/\*(?!!).*?\*/|/\*!\d*)+", re.DOTALL)
"""Text allowed before a statement's first word; MySQL executes the contents of `/*! … */`."""
_SETS = re.compile(
    r";\s*[^\s;]|/\*[!M]|:=|\binto\s+(?:local\s+|global\s+)?(?:temp|@)|\btemp(?:orary)?\s+(?:table|view|sequence)"
    r"|\b(?:set_config|pg_notify|setseed|dblink\w*|get_lock|release_(?:all_)?locks?|last_insert_id\s*\(\s*[^)\s]"
    r"|pg_(?:try_)?advisory_(?:lock|unlock)\w*)\b|\blast_insert_id\s*\(\s*[^)\s]",
    re.IGNORECASE,
)
"""Parts that leave state on the connection in a plain-looking statement; a second statement is not analysed."""
_WRITES = re.compile(r"\b(?:insert|update|delete|merge|replace|into)\b", re.IGNORECASE)
_CALL = re.compile(r"([A-Za-z_][\w.$]*)\s*\(")
_HARMLESS_WORDS: Final = (
    "abs all and any array as avg between bool_and bool_or by case cast ceil ceiling char_length coalesce concat "
    "count current_date current_timestamp date date_trunc dense_rank distinct else except exists extract filter "
    "floor from greatest group having ifnull in instr intersect interval is join json_agg json_extract lag lead "
    "least left length like limit lower ltrim max min mod not now nullif of offset on or order over partition "
    "position power quote rank recursive replace right round row row_number rtrim select set sqrt string_agg "
    "substr substring sum then timestamp to_char trim union unnest upper using values varchar char decimal "
    "numeric when where with within"
)
_HARMLESS: Final = frozenset(_HARMLESS_WORDS.split())
_MOST_KNOWN: Final = 512


def first_words(statement: str) -> tuple[str, str]:
    """Return the first two words in capitals, empty if there are none; leading comments do not count."""
    if not statement[:1].isalpha():
        statement = statement[found.end() :] if (found := _BEFORE_WORD.match(statement)) else statement
    words = statement[:40].upper().replace(";", " ").replace("=", " ").split(None, 2)
    return (words[0] if words else ""), (words[1] if len(words) > 1 else "")


def ends_transaction(word: str, following: str, dialect: str) -> bool:
    """Return whether a statement that begins with these words ends the transaction, or is equivalent to its end."""
    if word in _ENDS_TRANSACTION:
        return following != "TO"
    if dialect in _MYSQL:
        return (word in _ENDS_IT_ON_MYSQL and following != "TEMPORARY") or (word, following) == (
            "SET",
            "AUTOCOMMIT",
        )
    return (word, following) == ("PREPARE", "TRANSACTION")


@lru_cache(maxsize=_MOST_KNOWN)
def kind_of(statement: str, dialect: str) -> Kind:
    """Return the effect of a statement on later ones; repeated statements are analysed once."""
    word, following = first_words(statement)
    if ends_transaction(word, following, dialect):
        return Kind.ENDS
    if word not in _PLAIN or following in _TEMPORARY or _SETS.search(statement):
        return Kind.SETS
    if word not in _READS or _WRITES.search(statement):
        return Kind.WRITE
    called = {name.lower() for name in _CALL.findall(statement)}
    return Kind.READ if called <= _HARMLESS else Kind.WRITE


ANY_THREAD = 0
_BACK = ("ROLLBACK TO", "RELEASE")
ELSEWHERE = "a handler's session and connection belong to its own thread: another one used them"
OTHER_TASK = (
    "a handler's session and connection belong to its own task: another one used them (asyncio.gather and create_task make "
    "tasks, and so does asyncio.wait_for before Python 3.12: await one call after the other, and use asyncio.timeout)"
)


class ConnectionWatch:
    """Observations on a run's connection.

    Attributes:
        doomed: why the run must not commit; None while it may.
        driver: the driver's connection.
        handling: a handler is running, so events are attributed to it.
        statements: the number of statements sent by handlers.
        writes: the number of those that may have changed something.
        isolated: the handler is alone in its transaction, so it may change any setting.
        settings: it did, so the connection must be reset before others use it.
        raw: it was given the driver's connection, on which nothing is visible.
        rolls_back: SQLAlchemy itself is about to take the driver's connection, to roll back.
        refused: the last database error while a handler ran; a flush rolls back because of it.
        went_on: the handler has sent another statement after an error that ended its transaction.
        savepoint: the framework's own savepoint, as opposed to a handler's; None = none.
        first: called once, before the handler's first statement.
        thread: the worker's thread; ANY_THREAD = not checked.
        task: the worker's task, on an event loop; None = not checked.
        strays: the sessions of these items were used after their handlers had returned.
        commits: a handler called `session.commit()`, which only flushes.
        routines: the database's functions that may change settings.
    """

    __slots__ = (
        "commits",
        "doomed",
        "driver",
        "first",
        "handling",
        "isolated",
        "raw",
        "refused",
        "rolls_back",
        "routines",
        "savepoint",
        "settings",
        "statements",
        "strays",
        "task",
        "thread",
        "went_on",
        "writes",
    )

    def __init__(
        self, *, isolated: bool = False, any_thread: bool = False, task: Task[Any] | None = None
    ) -> None:
        self.doomed: BaseException | None = None
        self.driver: Any = None
        self.handling = False
        self.statements = 0
        self.writes = 0
        self.isolated = isolated
        self.settings = False
        self.raw = False
        self.rolls_back = False
        self.refused: BaseException | None = None
        self.went_on = False
        self.savepoint: NestedTransaction | None = None
        self.first: Callable[[], None] | None = None
        self.thread = ANY_THREAD if any_thread else get_ident()
        self.task = task
        self.strays: dict[Item, SessionOwned] = {}
        self.commits = False
        self.routines: frozenset[str] = frozenset()

    def intrusion(self) -> SessionOwned | None:
        """Return why the caller may not use the connection; None if it is the worker itself."""
        if self.thread and self.thread != get_ident():
            return SessionOwned(ELSEWHERE)
        if self.task is not None and self.task is not current_task():
            return SessionOwned(OTHER_TASK)
        return None

    def forget_errors(self) -> None:
        """Drop errors and callbacks at the end: tracebacks lead to frames that hold this object, and it would hold them."""
        self.doomed = self.refused = self.first = None
        self.strays = {}

    def on_first_statement(self) -> None:
        """The handler is about to send a statement."""
        first, self.first = self.first, None
        if first is not None:
            first()

    def sets(self, why: str) -> None:
        """The handler is about to do something that would affect others.

        Raises:
            NeedsIsolation: there are others.
        """
        if not self.isolated:
            error = NeedsIsolation(why)
            self.doom(error)
            raise error
        self.settings = True

    def bares(self) -> None:
        """The handler takes the driver's connection, on which nothing is visible.

        Raises:
            NeedsIsolation: there are others.
            Exception: why the run is doomed.
        """
        if self.rolls_back:
            self.rolls_back = False
            return
        if self.doomed is not None:
            # With it the handler could commit what the unit must roll back.
            self.went_on = True
            raise self.doomed
        self.sets("the handler uses the driver's own connection")
        self.raw = True
        self.on_first_statement()
        self.statements += 1
        self.writes += 1

    def doom(self, error: BaseException) -> None:
        """Doom the run; the first reason is kept."""
        if self.doomed is None:
            self.doomed = error

    def forgive(self) -> None:
        """The cause of the doom was rolled back."""
        self.doomed = None


class UnitConnection(Connection):
    """A connection that handlers are given.

    Attributes:
        watch: observes it; None = not observed.
    """

    watch: ConnectionWatch | None = None

    @property
    def connection(self) -> PoolProxiedConnection:
        """The pool's proxy of the driver's connection; a handler that uses it must be alone."""
        watch = self.watch
        if watch is not None and watch.handling:
            watch.bares()
        return super().connection

    def forget_options(self) -> None:
        """Remove execution options that were set on it, which would apply to all that share it.

        Reflecting a table on MySQL turns off error events this way.
        """
        self._execution_options = self.engine._execution_options

    def invalidate(self, exception: BaseException | None = None) -> None:
        """Refused in a handler; SQLAlchemy itself invalidates a connection with the error by which it was lost."""
        if exception is None:
            self._refuse("invalidate")
        super().invalidate(exception)

    def close(self) -> None:
        """Refused in a handler."""
        self._refuse("close")
        super().close()

    def detach(self) -> None:
        """Refused in a handler."""
        self._refuse("detach")
        super().detach()

    def _refuse(self, name: str) -> None:
        watch = self.watch
        if watch is not None and watch.handling:
            error = SessionOwned(f"the framework owns this connection: no {name}() in a handler")
            watch.doom(error)
            raise error


def watch_connection(connection: UnitConnection, watch: ConnectionWatch) -> None:
    """Let `watch` observe `connection`, which is in a transaction, until `connection.watch` is None again."""
    watch.driver = connection.connection.driver_connection
    watch.routines = setting_routines(connection, monotonic())
    connection.watch = watch


def install(engine: Engine) -> None:
    """Make every `UnitConnection` of `engine` report to its watch, if it has one; harmless when called again."""
    for name, listener in (
        ("before_cursor_execute", _statement),
        ("handle_error", _error),
        ("commit", _commit),
        ("rollback", _rollback),
    ):
        if not event.contains(engine, name, listener):
            event.listen(engine, name, listener)


def _watch_of(connection: Connection | None) -> ConnectionWatch | None:
    if connection is None or connection.closed or connection.invalidated:
        return None
    found: ConnectionWatch | None = getattr(connection, "watch", None)
    return found


def _statement(connection: Connection, _cursor: Any, statement: str, _: Any, context: Any, __: bool) -> None:
    watch: ConnectionWatch | None = getattr(connection, "watch", None)
    if watch is None:
        return
    if watch.task is not None or (watch.thread and watch.thread != get_ident()):
        _require_worker(watch)
    if not watch.handling:
        return
    if watch.doomed is not None and not statement.startswith(_BACK):
        # The database may have lost the transaction, and would autocommit later statements.
        watch.went_on = True
        raise watch.doomed
    # Of statements that SQLAlchemy compiled only the template is analysed: it is short, and always the same object.
    compiled = getattr(context, "compiled", None)
    template = statement if compiled is None else compiled.string
    kind = kind_of(template, connection.dialect.name)
    if kind is Kind.ENDS:
        error = SessionOwned("the framework owns this transaction: a handler may not send " + statement[:40])
        watch.doom(error)
        raise error
    if kind is Kind.SETS:
        watch.sets(f"the handler sends {statement.split(None, 1)[0].upper()[:20]}, which others would notice")
    elif watch.routines and not watch.routines.isdisjoint(called(template)):
        watch.sets("the handler calls a function that may change settings, which others would notice")
    if watch.first is not None:
        watch.on_first_statement()
    watch.statements += 1
    if kind is not Kind.READ:
        watch.writes += 1


def _require_worker(watch: ConnectionWatch) -> None:
    stray = watch.intrusion()
    if stray is not None:
        watch.doom(stray)
        raise stray


def _error(context: ExceptionContext) -> None:
    watch = _watch_of(context.connection)
    if watch is None or not watch.handling:
        return
    # SQLAlchemy sets it only if an earlier listener has replaced the error.
    chained = getattr(context, "chained_exception", None)
    original = chained or context.sqlalchemy_exception or context.original_exception
    watch.refused = original
    if classify(original) is not Fault.DATA or not _only_statement(context.connection, watch):
        watch.doom(original)


def _only_statement(connection: Connection | None, watch: ConnectionWatch) -> bool:
    """Return whether an error about data has rolled back no more than its own statement, or the handler's own savepoint."""
    if in_savepoint(connection, watch):
        return True
    if connection is None or connection.dialect.name == "postgresql":
        return False
    # SQLite may be told to roll back the whole transaction: INSERT OR ROLLBACK.
    return getattr(watch.driver, "in_transaction", True) is not False


def in_savepoint(connection: Connection | None, watch: ConnectionWatch) -> bool:
    """Whether the connection is in a savepoint that a handler opened."""
    nested: NestedTransaction | None = connection.get_nested_transaction() if connection is not None else None
    return nested is not None and nested is not watch.savepoint


def _commit(connection: Connection) -> None:
    watch = _watch_of(connection)
    if watch is not None and watch.handling:
        error = SessionOwned("the framework owns this transaction: a handler may not commit its connection")
        watch.doom(error)
        raise error


def _rollback(connection: Connection) -> None:
    # No raise, and no SessionOwned: SQLAlchemy itself calls this after a failed flush.
    watch = _watch_of(connection)
    if watch is not None and watch.handling:
        watch.doom(watch.refused or HandlerFault("the transaction was rolled back, which the framework owns"))
        watch.rolls_back = True
