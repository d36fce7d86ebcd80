"""Stores messages in transactions that callers own, and sends them when such a transaction has committed."""

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Connection, Engine, event, inspect, select
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import Session, SessionTransaction

from oncemq.engine.base.hook_points import nothing
from oncemq.engine.outbox.confirmed_publisher import Publishing
from oncemq.engine.outbox.relay import LOOK_FOR_DUE, Relay
from oncemq.engine.plan import AppPlan
from oncemq.errors import Unpublishable
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.messages import outbox, transactions
from oncemq.ledger.messages.outbox import Stored
from oncemq.message.envelope import OutgoingMessage
from oncemq.observe.observers import Observers
from oncemq.upkeep.runner import Upkeep

_STORED: Final = "oncemq_stored"
_RELAY_EVERY: Final = timedelta(seconds=5)


class CallerOutbox:
    """The outbox of an app, for transactions outside of handlers.

    Args:
        plan: the app; it has a database.
        publishing: sends messages.
        redact: masks the app's secrets in a broker's errors, which are stored.
    """

    def __init__(self, plan: AppPlan, publishing: Publishing, redact: Callable[[str], str]) -> None:
        self._scope = f"{plan.name}.publisher"
        self._clock = plan.clock
        self._lock = threading.Lock()
        self._known: weakref.WeakKeyDictionary[Engine, Relay] = weakref.WeakKeyDictionary()
        self._relays: dict[str, Relay] = {}
        self._engines = plan.engines
        self._layout = plan.layout
        self._by_shard: list[Relay] = []
        self._upkeep: list[Upkeep] = []
        observers = Observers(())
        for engine in plan.engines:
            relay = Relay(
                plan.name, engine, publishing, plan.clock, observers, redact, plan.outbox_window, nothing
            )
            self._relays[self._ledger_id(engine)] = relay
            self._by_shard.append(relay)
            tasks = [relay.task(every=_RELAY_EVERY), relay.due_task(every=LOOK_FOR_DUE)]
            self._upkeep.append(Upkeep(engine, tasks, plan.clock, _failed))
        for upkeep in self._upkeep:
            upkeep.start()

    def add(self, session: Session | Connection, messages: Sequence[tuple[str, OutgoingMessage]]) -> None:
        """Store messages in the transaction of `session`.

        Raises:
            Unpublishable: its database is not the app's, or has no outbox table.
        """
        connection = _connection_of(session)
        relay = self._relay_of(connection)
        if isinstance(session, Session):
            _note(session, relay, relay.add(connection, self._scope, messages))
        else:
            # There is no event for the end of a connection's transaction: relays find the messages at their next look.
            relay.add(connection, self._scope, messages, owned=False)

    def store(self, messages: Sequence[tuple[str, OutgoingMessage]]) -> None:
        """Store messages in transactions of their own, each on the shard of its key."""
        by_shard: dict[int, list[tuple[str, OutgoingMessage]]] = {}
        for topic, message in messages:
            by_shard.setdefault(self._shard_of(message.key), []).append((topic, message))
        for shard, mine in by_shard.items():
            relay = self._by_shard[shard]
            with self._engines[shard].begin() as connection:
                stored = relay.add(connection, self._scope, mine)
            relay.send(stored)

    def cancel(self, session: Session | Connection | None, topic: str, wanted: OutgoingMessage) -> int:
        """Delete messages that were published for later: in the session's transaction, or in own ones; returns how many.

        Raises:
            Unpublishable: the session's database is not the app's, or has no outbox table.
        """
        if session is not None:
            connection = _connection_of(session)
            return self._relay_of(connection).cancel(connection, topic, wanted)
        count = 0
        for engine, relay in zip(self._engines, self._by_shard, strict=True):
            with engine.begin() as connection:
                count += relay.cancel(connection, topic, wanted)
        return count

    def close(self, grace: timedelta) -> None:
        """Send the committed rows, within `grace`."""
        for upkeep in self._upkeep:
            upkeep.stop()
        for relay in self._relays.values():
            relay.stop(grace=grace)

    def _shard_of(self, key: str | None) -> int:
        return 0 if self._layout is None or key is None else self._layout.shard_of(key)

    def _relay_of(self, connection: Connection) -> Relay:
        found = self._known.get(connection.engine)
        if found is None:
            found = self._relays.get(_read_ledger_id(connection))
            if found is None:
                raise Unpublishable(
                    "the session is on another database than the app's: no worker would send this message"
                )
            with self._lock:
                self._known[connection.engine] = found
        return found

    def _ledger_id(self, engine: Engine) -> str:
        with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            found = connection.execute(_OWN_ID).scalar()
        if found is not None:
            return str(found)
        with engine.begin() as connection:
            return transactions.ledger_id(connection, self._clock.now())


_OWN_ID = select(transactions.TABLE.c.place).where(transactions.TABLE.c.id == transactions.OWN_ID)


def _connection_of(session: Any) -> Connection:
    if isinstance(session, Connection):
        return session
    if isinstance(session, Session):
        try:
            return session.connection()
        except UnboundExecutionError:
            return session.connection(bind_arguments={"clause": outbox.TABLE.select()})
    raise Unpublishable(
        f"session= takes a SQLAlchemy Session or Connection, not {type(session).__name__}; "
        "for an AsyncSession use oncemq.open_async_publisher"
    )


def _read_ledger_id(connection: Connection) -> str:
    """Return the identity of this database's ledger; "" if it has none yet.

    Queries the catalog first: a failed statement would abort the caller's transaction on PostgreSQL.
    """
    present = inspect(connection).has_table(outbox.TABLE.name)
    if not present:
        raise Unpublishable(
            f"the session's database has no table {outbox.TABLE.name}: it is not the app's, "
            "or `oncemq tables create` has not been run"
        )
    return str(connection.execute(_OWN_ID).scalar() or "")


def _note(session: Session, relay: Relay, stored: list[Stored]) -> None:
    """Send the messages when the session's transaction ends; those rolled back are not found then."""
    pending = session.info.get(_STORED)
    if pending is None:
        pending = session.info[_STORED] = deque()
        event.listen(session, "after_transaction_end", _send_stored)
    pending.append((relay, stored))


def _send_stored(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is not None:
        return
    pending = session.info[_STORED]
    while pending:
        relay, stored = pending.popleft()
        relay.send(stored)


def _failed(doing: str, error: BaseException) -> None:
    logging.getLogger(__name__).warning("%s failed and is tried again: %s", doing, error)
