"""What is seen on a run's connection while handlers work: statements, errors, and ends of the transaction behind our back.

Engine events report: every statement is counted, every database error outside a handler's own savepoint dooms the run,
and ending the transaction behind the session's back is refused.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Engine, ExceptionContext, NestedTransaction, event

from oncemq.errors import HandlerFault, SessionOwned
from oncemq.retry.classify import Fault, classify
from oncemq.run.statements import READS, ends_transaction, first_words

_WATCH = "oncemq_watch"


class Watch:
    """What has been seen on a run's connection.

    Attributes:
        doomed: why the run must not commit; None while it may.
        handling: a handler is running, so what happens is the handler's doing.
        crowded: objects of neighbours were pending when it began, so that a failing flush may be theirs.
        flush_failed: a flush failed while it ran.
        statements: how many statements handlers have sent.
        reads: how many of them were queries, which may have flushed a neighbour's objects.
        savepoint: the framework's own one, which is no handler's; None = none.
        first: called once, before the handler's first statement.
    """

    __slots__ = ("crowded", "doomed", "first", "flush_failed", "handling", "reads", "savepoint", "statements")

    def __init__(self) -> None:
        self.doomed: BaseException | None = None
        self.handling = False
        self.crowded = False
        self.flush_failed = False
        self.statements = 0
        self.reads = 0
        self.savepoint: NestedTransaction | None = None
        self.first: Callable[[], None] | None = None

    def enter(self, *, crowded: bool) -> None:
        """A handler begins."""
        self.crowded = crowded
        self.flush_failed = False
        self.handling = True

    def speaks(self) -> None:
        """The handler is about to send a statement."""
        first, self.first = self.first, None
        if first is not None:
            first()

    def doom(self, error: BaseException) -> None:
        """Keep the first reason."""
        if self.doomed is None:
            self.doomed = error

    def forgive(self) -> None:
        """What doomed the run has been undone."""
        self.doomed = None
        self.flush_failed = False


def watch_connection(connection: Connection, watch: Watch) -> Callable[[], None]:
    """Let `watch` see what happens on `connection`; returns what ends it, which never raises."""
    # Kept, because a connection that is closed or lost no longer gives it away.
    info = connection.info
    info[_WATCH] = watch

    def end() -> None:
        if info.get(_WATCH) is watch:
            del info[_WATCH]

    return end


def install(engine: Engine) -> None:
    """Make every connection of `engine` report to its watch, if it has one; harmless when called again."""
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
    found: Watch | None = connection.info.get(_WATCH)
    return found


def _statement(connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
    watch: Watch | None = connection.info.get(_WATCH)
    if watch is None or not watch.handling:
        return
    if watch.first is not None:
        watch.speaks()
    watch.statements += 1
    word, following = first_words(statement)
    if word in READS:
        watch.reads += 1
    elif ends_transaction(word, following, connection.dialect.name):
        error = SessionOwned(f"the framework owns this transaction: a handler may not send {word}")
        watch.doom(error)
        raise error


def _error(context: ExceptionContext) -> None:
    watch = _watch_of(context.connection)
    if watch is None or not watch.handling:
        return
    # SQLAlchemy sets it only when a listener before this one has replaced the error.
    chained = getattr(context, "chained_exception", None)
    original = chained or context.sqlalchemy_exception or context.original_exception
    if not in_savepoint(context.connection, watch) or classify(original) is not Fault.DATA:
        watch.doom(original)


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
    # No raise, and no SessionOwned, which would settle whose fault it is: SQLAlchemy itself comes here after
    # a failed flush, which may have been one of another message's objects.
    watch = _watch_of(connection)
    if watch is not None and watch.handling:
        watch.doom(HandlerFault("the transaction was rolled back, which other messages share"))
