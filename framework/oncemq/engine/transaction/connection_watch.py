"""Watches a run's connection while handlers work: statements, errors, and ends of the transaction behind our back.

Engine events report: every statement is counted, every database error that undid more than its own statement dooms the run,
and ending the transaction behind the session's back is refused. What others of the unit would notice is not sent at all:
its message runs alone (`oncemq.engine.transaction.isolation`).
"""

from collections.abc import Callable
from threading import get_ident
from typing import Any

from sqlalchemy import Connection, Engine, ExceptionContext, NestedTransaction, PoolProxiedConnection, event

from oncemq.contracts.unit import Item
from oncemq.engine.transaction.isolation import NeedsIsolation
from oncemq.engine.transaction.statements import Kind, kind_of
from oncemq.errors import HandlerFault, SessionOwned
from oncemq.retry.classify import Fault, classify

ANY_THREAD = 0
_BACK = ("ROLLBACK TO", "RELEASE")
ELSEWHERE = "a handler's session and connection belong to its own thread: another one used them"


class Watch:
    """What has been seen on a run's connection.

    Attributes:
        doomed: why the run must not commit; None while it may.
        driver: the driver's connection.
        handling: a handler is running, so what happens is the handler's doing.
        statements: how many statements handlers have sent.
        writes: how many of them may have changed something.
        isolated: the handler has the transaction for itself, so it may set what it likes.
        settings: it has, so the connection must be cleaned before others use it.
        raw: it was given the driver's connection, behind which nothing is seen.
        refused: the last error of the database while a handler ran; a flush rolls back because of it.
        went_on: the handler has sent another statement behind an error that ended its transaction.
        savepoint: the framework's own one, which is no handler's; None = none.
        first: called once, before the handler's first statement.
        thread: that of the worker; ANY_THREAD = it does not matter.
        strays: the sessions of these items were used after their handlers had returned.
        commits: a handler called `session.commit()`, which only flushes.
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
        "savepoint",
        "settings",
        "statements",
        "strays",
        "thread",
        "went_on",
        "writes",
    )

    def __init__(self, *, isolated: bool = False, any_thread: bool = False) -> None:
        self.doomed: BaseException | None = None
        self.driver: Any = None
        self.handling = False
        self.statements = 0
        self.writes = 0
        self.isolated = isolated
        self.settings = False
        self.raw = False
        self.refused: BaseException | None = None
        self.went_on = False
        self.savepoint: NestedTransaction | None = None
        self.first: Callable[[], None] | None = None
        self.thread = ANY_THREAD if any_thread else get_ident()
        self.strays: dict[Item, SessionOwned] = {}
        self.commits = False

    def speaks(self) -> None:
        """The handler is about to send a statement."""
        first, self.first = self.first, None
        if first is not None:
            first()

    def sets(self, why: str) -> None:
        """The handler is about to do what others would notice.

        Raises:
            NeedsIsolation: there are others.
        """
        if not self.isolated:
            error = NeedsIsolation(why)
            self.doom(error)
            raise error
        self.settings = True

    def bares(self) -> None:
        """The handler takes the driver's connection, on which nothing can be seen.

        Raises:
            NeedsIsolation: there are others.
        """
        if self.doomed is not None:
            return  # SQLAlchemy itself takes it to roll back
        self.sets("the handler uses the driver's own connection")
        self.raw = True
        self.speaks()
        self.statements += 1
        self.writes += 1

    def doom(self, error: BaseException) -> None:
        """Keep the first reason."""
        if self.doomed is None:
            self.doomed = error

    def forgive(self) -> None:
        """What doomed the run has been undone."""
        self.doomed = None


class UnitConnection(Connection):
    """A connection that handlers are lent.

    Attributes:
        watch: sees what happens on it; None = nothing does.
    """

    watch: Watch | None = None

    @property
    def connection(self) -> PoolProxiedConnection:
        """The pool's proxy of the driver's connection; a handler that takes it must be alone."""
        watch = self.watch
        if watch is not None and watch.handling:
            watch.bares()
        return super().connection

    def forget_options(self) -> None:
        """Forget execution options that were set on it, which would hold for all that share it.

        To look at a table on MySQL turns off the events of errors in this way.
        """
        self._execution_options = self.engine.get_execution_options()

    def invalidate(self, exception: BaseException | None = None) -> None:
        """Refused in a handler; SQLAlchemy itself gives a connection up with the error by which it was lost."""
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


def watch_connection(connection: UnitConnection, watch: Watch) -> Callable[[], None]:
    """Let `watch` see what happens on `connection`; returns what ends it, which never raises."""
    watch.driver = connection.connection.driver_connection
    connection.watch = watch

    def end() -> None:
        if connection.watch is watch:
            connection.watch = None

    return end


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


def _watch_of(connection: Connection | None) -> Watch | None:
    if connection is None or connection.closed or connection.invalidated:
        return None
    found: Watch | None = getattr(connection, "watch", None)
    return found


def _statement(connection: Connection, _cursor: Any, statement: str, _: Any, context: Any, __: bool) -> None:
    watch: Watch | None = getattr(connection, "watch", None)
    if watch is None:
        return
    if watch.thread and watch.thread != get_ident():
        stray = SessionOwned(ELSEWHERE)
        watch.doom(stray)
        raise stray
    if not watch.handling:
        return
    if watch.doomed is not None and not statement.startswith(_BACK):
        # The database may have lost the transaction, and would commit by itself what comes after.
        watch.went_on = True
        raise watch.doomed
    # Of statements that SQLAlchemy compiled only the pattern is looked at: it is short, and always the same object.
    compiled = getattr(context, "compiled", None)
    kind = kind_of(statement if compiled is None else compiled.string, connection.dialect.name)
    if kind is Kind.ENDS:
        error = SessionOwned("the framework owns this transaction: a handler may not send " + statement[:40])
        watch.doom(error)
        raise error
    if kind is Kind.SETS:
        watch.sets(f"the handler sends {statement.split(None, 1)[0].upper()[:20]}, which others would notice")
    if watch.first is not None:
        watch.speaks()
    watch.statements += 1
    if kind is not Kind.READ:
        watch.writes += 1


def _error(context: ExceptionContext) -> None:
    watch = _watch_of(context.connection)
    if watch is None or not watch.handling:
        return
    # SQLAlchemy sets it only when a listener before this one has replaced the error.
    chained = getattr(context, "chained_exception", None)
    original = chained or context.sqlalchemy_exception or context.original_exception
    watch.refused = original
    if classify(original) is not Fault.DATA or not _only_statement(context.connection, watch):
        watch.doom(original)


def _only_statement(connection: Connection | None, watch: Watch) -> bool:
    """Return whether an error about data has undone no more than its own statement, or the handler's own savepoint."""
    if in_savepoint(connection, watch):
        return True
    if connection is None or connection.dialect.name == "postgresql":
        return False
    # SQLite may be told to undo the whole transaction: INSERT OR ROLLBACK.
    return getattr(watch.driver, "in_transaction", True) is not False


def in_savepoint(connection: Connection | None, watch: Watch) -> bool:
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
    # No raise, and no SessionOwned: SQLAlchemy itself comes here after a failed flush.
    watch = _watch_of(connection)
    if watch is not None and watch.handling:
        watch.doom(watch.refused or HandlerFault("the transaction was rolled back, which the framework owns"))
