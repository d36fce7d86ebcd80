"""Gives each handler its own session on the unit's connection, and collects objects that handlers only add (rule 13, rule 20).

A session shows nothing of earlier messages. Objects that its handler only added, without reading or sending anything, go to the
unit's collector, which inserts the objects of many messages with one statement; everything else is flushed at its end.
Statements that bypass the session are seen by `oncemq.engine.transaction.connection_watch`.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from threading import get_ident
from typing import Any, Final, Self

from sqlalchemy import ClauseElement, Connection, RootTransaction
from sqlalchemy.orm import InstanceState, Session, SessionTransaction
from sqlalchemy.orm.identity import IdentityMap
from sqlalchemy.sql import visitors

from oncemq.contracts.unit import Item
from oncemq.engine.transaction.connection_watch import ANY_THREAD, ConnectionWatch, in_savepoint
from oncemq.errors import HandlerFault, SessionOwned

_NO_ONE_YET = -1
_ASK = -2
"""On an event loop all workers have the same thread: the watch knows its task."""
_TOO_LATE = "the session was used after its handler had returned: its message may be committed already"
_PENDING_EVENTS = (
    *("before_attach", "after_attach", "transient_to_pending", "pending_to_persistent", "after_begin"),
    *("before_flush", "after_flush", "after_flush_postexec", "after_transaction_create"),
)


class UnitSession(Session):
    """A session for one call of a handler: flush, query and savepoints are the handler's, the transaction is not."""

    bind: Connection
    watch: ConnectionWatch
    items: Sequence[Item] = ()
    heard: bool = True
    _user: int = ANY_THREAD

    @classmethod
    def over(
        cls, connection: Connection, watch: ConnectionWatch, items: Sequence[Item] = (), *, heard: bool = True
    ) -> "UnitSession":
        """Return a session inside the connection's transaction, for a handler call for `items`.

        Args:
            connection: in its transaction.
            watch: the observations on it.
            items: the items of the call.
            heard: user code may listen to all sessions.
        """
        session = cls(connection, join_transaction_mode="rollback_only", expire_on_commit=False)
        session.watch = watch
        session.items = items
        session.heard = heard
        session._user = watch.thread if watch.task is None else _ASK
        return session

    def commit(self) -> None:
        """Flush; the framework commits, all messages of the unit together."""
        self.watch.commits = True
        self.flush()

    def rollback(self) -> None:
        """Doom the run: the transaction is the framework's, which a handler cannot roll back."""
        if self.watch.handling:
            self.watch.doom(
                SessionOwned("the handler called session.rollback(): raise Retry or Reject instead")
            )
        else:
            super().rollback()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the session open until the handler returns."""

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
        """Refused in a handler: the pending changes would be lost with the added objects."""
        self._refuse("expunge_all")
        super().expunge_all()

    def prepare(self) -> None:
        """Refused in a handler."""
        self._refuse("prepare")
        super().prepare()

    def misuse(self) -> HandlerFault | None:
        """Return state that a handler left behind and that would affect the next one."""
        connection = self.bind
        if self.get_nested_transaction() is not None or in_savepoint(connection, self.watch):
            return SessionOwned("the handler left a savepoint open: write with session.begin_nested(): …")
        if connection.closed or connection.invalidated:
            return SessionOwned(
                "the framework owns this connection: a handler may not close or invalidate it"
            )
        return None

    def pending(self) -> bool:
        """Return whether a flush would send anything."""
        return bool(self._new or self._deleted or self.identity_map._modified)

    def lend(self, transaction: SessionTransaction) -> None:
        """Continue in the transaction of an earlier session, which left nothing in it."""
        transaction.session = self
        self._transaction = transaction

    def give_back(self, to: Session) -> SessionTransaction | None:
        """Return the session's transaction if nothing of this session is left in it; moving it to another session."""
        found = self._transaction
        if found is None or self._new or self._deleted or found._parent is not None or not found.is_active:
            return None
        if self.identity_map._dict or found._new or found._deleted or found._dirty or found._key_switches:
            return None  # a rollback would restore those objects, whose session it then was
        self._transaction = None
        found.session = to
        return found

    def is_unused(self, objects: IdentityMap) -> bool:
        """Return whether nothing is left in the session, which was made with this map of `objects`."""
        left = self._new or self._deleted or objects._dict or objects._modified or self._transaction
        return not left and self._nested_transaction is None and self.identity_map is objects

    def refuse_all(self) -> None:
        """Refuse further use of this session."""
        self._user = _NO_ONE_YET

    def end(self) -> None:
        """Forget the session's objects."""
        if self._transaction is not None or self._new or self._deleted or self.identity_map._dict:
            super().close()

    def _refuse(self, name: str, advice: str = "") -> None:
        if self.watch.handling:
            error = SessionOwned(f"the framework owns this session: no {name}() in a handler{advice}")
            self.watch.doom(error)
            raise error

    def _before_attach(self, state: InstanceState[Any], obj: object) -> bool:
        if self._user != get_ident():
            self._require_user()
        if state.session_id is not None:
            return super()._before_attach(state, obj)
        # Without beginning a transaction, which costs more than everything else: objects that are only added need none.
        if self.heard or "dispatch" in self.__dict__:
            self.dispatch.before_attach(self, state)
        return True

    def _after_attach(self, state: InstanceState[Any], obj: object) -> None:
        if self.heard or state.key is not None or "dispatch" in self.__dict__:
            super()._after_attach(state, obj)
            return
        # There are no listeners: a dispatcher for each session would cost as much as the session.
        state.session_id = self.hash_key
        if state.modified and state._strong_obj is None:
            state._strong_obj = obj

    def _autobegin_t(self, begin: bool = False) -> SessionTransaction:
        if self._user != get_ident():
            self._require_user()
        # Before the session joins the transaction: it must join the savepoint that may be set here.
        if self.watch.first is not None and self.watch.handling:
            self.watch.on_first_statement()
        return super()._autobegin_t(begin)

    def _require_user(self) -> None:
        if self._user == _NO_ONE_YET:
            late = SessionOwned(_TOO_LATE)
            self.watch.strays.update(dict.fromkeys(self.items, late))
            raise late
        error = self.watch.intrusion()
        if error is not None:
            self.watch.doom(error)
            raise error


class Collector(Session):
    """Holds objects that the handlers of one run only added until they are inserted, in the order of the messages.

    Args:
        connection: in the unit's transaction.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, join_transaction_mode="rollback_only", expire_on_commit=False)
        self._connection = connection
        self._plain: dict[type, bool] = {}
        self._values: set[type[Any]] = set(_VALUES)
        self.heard = _listened_to(self)
        self.spare: SessionTransaction | None = None
        self._used: UnitSession | None = None
        self._alone = -1
        self._as_new: dict[str, Any] = {}

    def session(self, connection: Connection, watch: ConnectionWatch, items: Sequence[Item]) -> UnitSession:
        """Return a session for the next call."""
        session = self._again(items) or self._made(connection, watch, items)
        if self.spare is not None:
            session.lend(self.spare)
            self.spare = None
        return session

    def _made(self, connection: Connection, watch: ConnectionWatch, items: Sequence[Item]) -> UnitSession:
        self._used = UnitSession.over(connection, watch, items, heard=self.heard)
        self._as_new = dict(vars(self._used))
        self._alone = self._references()
        return self._used

    def _again(self, items: Sequence[Item]) -> UnitSession | None:
        """Return the session of an earlier call, as new, if nothing is left in it and nothing else refers to it.

        Creating a session costs more than most handlers.
        """
        if self._references() != self._alone:
            return None
        session = self._used
        if (
            session is None
            or session._user != _NO_ONE_YET
            or not session.is_unused(self._as_new["identity_map"])
        ):
            return None
        own = vars(session)
        own.clear()
        own.update(self._as_new, items=items, _new={}, _deleted={})
        return session

    def _references(self) -> int:
        return sys.getrefcount(self._used)

    def takes(self, session: UnitSession) -> bool:
        """Return whether a handler that sent nothing only added objects, whose insert may be deferred."""
        if session._deleted or session._nested_transaction is not None or session.identity_map._dict:
            return False
        if not session._new:
            return True
        if self.heard or ("dispatch" in session.__dict__ and _listened_to(session)):
            return False
        known, values = self._plain, self._values
        for state in session._new:
            usual = known.get(state.class_) and values.issuperset(map(type, state.dict.values()))
            if not usual and not self._may_wait(state):
                return False
        return True

    def take(self, session: UnitSession) -> None:
        """Take over the added objects."""
        new, key = self._new, self.hash_key
        for state, obj in session._new.items():
            new[state] = obj
            state.insert_order = len(new)
            state.session_id = key
        session._new = {}

    def end(self, session: UnitSession, *, keep: bool) -> None:
        """Drop a session after its call; with `keep`, its transaction serves the next one if nothing is left in it."""
        if session.is_unused(session.identity_map):
            return
        if keep:
            self.spare = session.give_back(self)
        session.end()

    def pending(self) -> bool:
        """Return whether a flush would send anything."""
        return bool(self._new)

    def discard(self) -> None:
        """Close; never raises."""
        try:
            self.close()
        except Exception:
            # A handler may have closed the connection; then there is nothing left to discard.
            with suppress(Exception):
                self._connection.invalidate()

    def _may_wait(self, state: InstanceState[Any]) -> bool:
        kind = state.class_
        plain = self._plain.get(kind)
        if plain is None:
            plain = self._plain[kind] = _is_plain(state)
        if not plain or self._values.issuperset(map(type, state.dict.values())):
            return plain
        if any(map(_is_sql, state.dict.values())):
            return False
        self._values.update(map(type, state.dict.values()))
        return True


_VALUES: Final[frozenset[type[Any]]] = frozenset({str, int, float, bool, bytes, type(None)})
"""Types of attributes that are known not to be SQL."""


def _is_sql(value: Any) -> bool:
    """Return whether an attribute is an SQL expression, which might read neighbours' rows."""
    return isinstance(value, ClauseElement) or hasattr(value, "__clause_element__")


def _is_plain(state: InstanceState[Any]) -> bool:
    """Return whether inserting such an object runs no user code, and no query for a default."""
    mapper = state.mapper
    if mapper.dispatch.before_insert or mapper.dispatch.after_insert:
        return False
    for table in mapper.tables:
        for column in getattr(table, "columns", ()):
            default = column.default
            if default is not None and default.is_clause_element and _reads(default.arg):
                return False
    return True


def _reads(expression: Any) -> bool:
    found = visitors.iterate(expression) if isinstance(expression, ClauseElement) else ()
    return any(getattr(part, "is_select", False) for part in found)


def _listened_to(session: Session) -> bool:
    """Return whether listeners are called at flushes, and would see objects of several messages together."""
    return any(getattr(session.dispatch, name) for name in _PENDING_EVENTS)


_PSYCOPG_IN_TRANSACTION = 2


def obstacle(
    connection: Connection,
    transaction: RootTransaction,
    watch: ConnectionWatch,
    session: Session | None = None,
) -> BaseException | None:
    """Return why this transaction must not be committed; None when it may."""
    if watch.doomed is not None:
        return watch.doomed
    ended = session is not None and not session.is_active
    if ended or connection.closed or connection.invalidated or not transaction.is_active:
        return SessionOwned("a handler ended the transaction that it shares with other messages")
    driver: Any = connection.connection.driver_connection
    info = getattr(driver, "info", None)
    status = getattr(info, "transaction_status", _PSYCOPG_IN_TRANSACTION)
    if status != _PSYCOPG_IN_TRANSACTION or getattr(driver, "in_transaction", True) is False:
        return SessionOwned("the transaction is ended or in error on the server: a handler hid that")
    return None
