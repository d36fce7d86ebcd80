"""What a handler may do with the session and transaction it is lent (rule 13).

The session is a subclass whose transaction belongs to the framework; what goes past it is seen by `oncemq.run.watch`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from sqlalchemy import Connection, NestedTransaction
from sqlalchemy.orm import Session, SessionTransaction

from oncemq.errors import HandlerFault, SessionOwned
from oncemq.run.watch import Watch, in_savepoint


class UnitSession(Session):
    """A session for many handlers in one transaction: flush, query and savepoints are the handler's, the rest is not."""

    bind: Connection
    watch: Watch
    _guard: SessionTransaction | None = None

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
        if self.watch.first is not None and self.pending():
            self.watch.speaks()
        in_savepoint = self._in_savepoint()
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
        self.watch.speaks()
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
        if self._in_savepoint() or in_savepoint(connection, self.watch):
            return SessionOwned("the handler left a savepoint open: write with session.begin_nested(): …")
        if connection.closed or connection.invalidated:
            return SessionOwned(
                "the framework owns this connection: a handler may not close or invalidate it"
            )
        return None

    def take_back(self, new: int, deleted: int) -> bool:
        """Forget what was added beyond so many new objects; returns whether nothing else is left of a handler.

        A second change to an object that was modified before cannot be seen, so nothing at all may be modified.
        """
        if len(self._deleted) != deleted or self.changed() or self.misuse() is not None:
            return False
        added = list(self._new)[new:]
        if added:
            self._expunge_states(added, to_transient=True)
        return True

    def changed(self) -> bool:
        """Return whether an object of a row that exists is modified."""
        return bool(self.identity_map._modified)

    def pending(self) -> bool:
        """Return whether a flush would send anything."""
        return bool(self._new or self._deleted or self.identity_map._modified)

    @contextmanager
    def without_new(self, first: int) -> Iterator[None]:
        """Leave out of flushes meanwhile what was added after the first so many new objects."""
        later = {state: self._new.pop(state) for state in list(self._new)[first:]}
        try:
            yield
        finally:
            self._new.update(later)

    def savepoint(self) -> SessionTransaction:
        """Set a savepoint that is no handler's; until `guarded_by` says that it is over."""
        savepoint = super().begin_nested()
        self.connection()  # only now it is sent
        self.guarded_by(savepoint, self.bind.get_nested_transaction())
        return savepoint

    def guarded_by(
        self, savepoint: SessionTransaction | None, on_connection: NestedTransaction | None
    ) -> None:
        """Note which savepoint is the framework's own; None = none of this session."""
        self._guard = savepoint
        self.watch.savepoint = on_connection

    def _in_savepoint(self) -> bool:
        """Whether the session is in a savepoint that a handler opened."""
        nested = self.get_nested_transaction()
        return nested is not None and nested is not self._guard

    def counts(self) -> tuple[int, int]:
        """Return how many objects are new and deleted, for `take_back`."""
        return len(self._new), len(self._deleted)
