"""What a handler may do with the session and transaction it is lent (rule 13), and how we see that it did more.

The session is a subclass whose transaction belongs to the framework. Engine events watch the connection:
every statement is counted, every database error outside a handler's own savepoint dooms the run, and
ending the transaction behind the session's back is refused.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self

from sqlalchemy import Connection, Engine, ExceptionContext, NestedTransaction, event
from sqlalchemy.orm import Session

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
    """

    __slots__ = ("crowded", "doomed", "flush_failed", "handling", "reads", "savepoint", "statements")

    def __init__(self) -> None:
        self.doomed: BaseException | None = None
        self.handling = False
        self.crowded = False
        self.flush_failed = False
        self.statements = 0
        self.reads = 0
        self.savepoint: NestedTransaction | None = None

    def enter(self, *, crowded: bool) -> None:
        """A handler begins."""
        self.crowded = crowded
        self.flush_failed = False
        self.handling = True

    def doom(self, error: BaseException) -> None:
        """Keep the first reason."""
        if self.doomed is None:
            self.doomed = error

    def forgive(self) -> None:
        """What doomed the run has been undone."""
        self.doomed = None
        self.flush_failed = False


class UnitSession(Session):
    """A session for many handlers in one transaction: flush, query and savepoints are the handler's, the rest is not."""

    bind: Connection
    watch: Watch

    @classmethod
    def over(cls, connection: Connection, watch: Watch) -> "UnitSession":
        """Return a session inside the connection's transaction."""
        session = cls(connection, join_transaction_mode="rollback_only", expire_on_commit=False)
        session.watch = watch
        return session

    def commit(self) -> None:
        """Flush; the framework commits, for all messages of the unit together."""
        self.flush()

    def flush(self, objects: Sequence[Any] | None = None) -> None:
        """Flush; a failure is noted, since what could not be flushed may be another message's."""
        in_savepoint = self.in_nested_transaction()
        try:
            super().flush(objects)
        except Exception:
            self.watch.flush_failed = self.watch.flush_failed or not in_savepoint
            raise

    def rollback(self) -> None:
        """Doom the run: the transaction holds other messages' work, which cannot be undone alone."""
        if self.watch.handling:
            self.watch.doom(
                SessionOwned("the handler called session.rollback(): raise Retry or Reject instead")
            )
        else:
            super().rollback()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the session open: the next message's handler uses it."""

    def close(self) -> None:
        """Refused in a handler."""
        self._refuse("close")
        super().close()

    def begin(self, nested: bool = False) -> Any:
        """Refused in a handler, unless for a savepoint."""
        if not nested:
            self._refuse("begin", "; for a savepoint use session.begin_nested()")
        return super().begin(nested)

    def reset(self) -> None:
        """Refused in a handler."""
        self._refuse("reset")
        super().reset()

    def invalidate(self) -> None:
        """Refused in a handler."""
        self._refuse("invalidate")
        super().invalidate()

    def expunge_all(self) -> None:
        """Refused in a handler: it would drop other messages' pending objects."""
        self._refuse("expunge_all")
        super().expunge_all()

    def expunge(self, instance: object) -> None:
        """Done when nothing of other messages is pending: the object may carry their changes."""
        self._alone("expunge")
        super().expunge(instance)

    def expire(self, instance: object, attribute_names: Any = None) -> None:
        """Done when nothing of other messages is pending: it discards changes of theirs too."""
        self._alone("expire")
        super().expire(instance, attribute_names)

    def expire_all(self) -> None:
        """Done when nothing of other messages is pending: it discards changes of theirs too."""
        self._alone("expire_all")
        super().expire_all()

    def refresh(self, instance: object, attribute_names: Any = None, with_for_update: Any = None) -> None:
        """Done when nothing of other messages is pending: it discards changes of theirs too."""
        self._alone("refresh")
        super().refresh(instance, attribute_names, with_for_update)

    def prepare(self) -> None:
        """Refused in a handler."""
        self._refuse("prepare")
        super().prepare()

    def _refuse(self, name: str, advice: str = "") -> None:
        if self.watch.handling:
            error = SessionOwned(f"the framework owns this session: no {name}() in a handler{advice}")
            self.watch.doom(error)
            raise error

    def _alone(self, name: str) -> None:
        watch = self.watch
        if watch.handling and watch.crowded:
            # Nobody's fault: the run is tried again with a flush after every item. Counted as a read, so
            # that later runs are flushed that way from the start.
            watch.reads += 1
            error = HandlerFault(f"session.{name}() would discard changes of other messages")
            watch.doom(error)
            raise error

    def misuse(self) -> HandlerFault | None:
        """Return what a handler left behind that the next one would suffer from."""
        connection = self.bind
        if self.in_nested_transaction() or _in_savepoint(connection, self.watch):
            return SessionOwned("the handler left a savepoint open: write with session.begin_nested(): …")
        if connection.closed or connection.invalidated:
            return SessionOwned(
                "the framework owns this connection: a handler may not close or invalidate it"
            )
        return None

    def untouched(self, new: int, deleted: int) -> bool:
        """Return whether nothing has been added or deleted beyond these counts, and nothing at all is modified.

        A second change to an object that was modified before cannot be seen, so modified must be empty.
        """
        same = len(self._new) == new and len(self._deleted) == deleted
        return same and not self.identity_map._modified and self.misuse() is None

    def pending(self) -> bool:
        """Return whether a flush would send anything."""
        return bool(self._new or self._deleted or self.identity_map._modified)

    def counts(self) -> tuple[int, int]:
        """Return how many objects are new and deleted, for `untouched`."""
        return len(self._new), len(self._deleted)


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
    in_savepoint = _in_savepoint(context.connection, watch)
    if not in_savepoint or classify(original) is not Fault.DATA:
        watch.doom(original)


def _in_savepoint(connection: Connection | None, watch: Watch) -> bool:
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
