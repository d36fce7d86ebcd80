"""Opens a unit's transaction on a watched connection, and leaves the connection as it was found."""

from asyncio import current_task
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import NoReturn, Self

from sqlalchemy import Engine, RootTransaction
from sqlalchemy.orm import Session

from oncemq.common.clock import Clock
from oncemq.contracts.unit import Unit
from oncemq.contracts.verdict import Culprits
from oncemq.engine.base.error_verdicts import (
    UnknownCulprit,
    as_engine_error,
    describe,
    is_infrastructure,
    judge,
)
from oncemq.engine.base.open_units import now_in
from oncemq.engine.crash.time_limits import TimeLimitSlot
from oncemq.engine.transaction.connection_watch import ConnectionWatch, UnitConnection, watch_connection
from oncemq.engine.transaction.handler_session import obstacle
from oncemq.engine.transaction.statement_cancel import cancel_statement
from oncemq.engine.transaction.transaction_guard import HiddenCommit, NeedsIsolation
from oncemq.errors import InfrastructureError, StrategyBug
from oncemq.ledger.database.connect import clean
from oncemq.retry.classify import Fault, classify

_REASONS = (Culprits, UnknownCulprit, InfrastructureError, StrategyBug, NeedsIsolation, HiddenCommit)
"""Errors that say already why a run ends."""


class OpenTransaction:
    """One transaction of a unit, from its begin until its connection returns to the pool; a context manager.

    Args:
        engine: the database; `oncemq.engine.transaction.connection_watch.install` has been called with it.
        unit: the unit.
        slot: where the watchdog finds the function that cancels a statement.
        clock: the source of time.
        isolated: it is for one handler call, which may change settings of the connection.
        always_clean: the connection is reset afterwards, whatever was seen on it.

    Attributes:
        unit: the unit.
        watch: the observations on the connection.
        connection: its connection.
        transaction: the open one.
    """

    __slots__ = (
        "_always_clean",
        "_clock",
        "_committed",
        "_engine",
        "_slot",
        "connection",
        "transaction",
        "unit",
        "watch",
    )

    connection: UnitConnection
    transaction: RootTransaction

    def __init__(
        self,
        engine: Engine,
        unit: Unit,
        slot: TimeLimitSlot,
        clock: Clock,
        *,
        isolated: bool = False,
        always_clean: bool = False,
    ) -> None:
        self._engine = engine
        self._slot = slot
        self._clock = clock
        self._always_clean = always_clean
        self._committed = False
        self.unit = unit
        self.watch = ConnectionWatch(
            isolated=isolated, task=current_task() if engine.dialect.is_async else None
        )

    def __enter__(self) -> Self:
        connection = self.connection = UnitConnection(self._engine)
        try:
            self._begin()
            watch_connection(connection, self.watch)
        except BaseException:
            connection.close()
            raise
        self._slot.cancel = partial(cancel_statement, self._engine, self.watch.driver)
        now_in(self._ongoing)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        connection, watch = self.connection, self.watch
        now_in(None)
        with connection:
            self._slot.cancel = None
            connection.watch = None
            watch.forget_errors()
            if not self._committed:
                self._roll_back()
            if watch.settings or self._always_clean:
                clean(connection, thoroughly=watch.raw)

    def _ongoing(self) -> bool:
        return self.connection.watch is not None

    def commit(self) -> None:
        """Commit; afterwards nothing raises any more."""
        self.transaction.commit()
        self._committed = True

    def obstacle(self, session: Session | None = None) -> BaseException | None:
        """Return why this transaction must not be committed; None when it may.

        Args:
            session: a session of the run, which must not have been ended either.
        """
        return obstacle(self.connection, self.transaction, self.watch, session)

    def require_whole(self, session: Session | None = None) -> None:
        """Refuse to go on if there is an obstacle.

        Raises:
            UnknownCulprit: there is one.
        """
        reason = self.obstacle(session)
        if reason is not None:
            raise UnknownCulprit(str(reason)) from reason

    def require_no_strays(self) -> None:
        """Refuse to go on if sessions were used after their handlers had returned.

        Raises:
            Culprits: with the items of those handlers.
        """
        strays = self.watch.strays
        if strays:
            raise Culprits({item: judge(error) for item, error in strays.items()})

    def _begin(self) -> None:
        """Begin; with a single writer, waiting for others is not part of our items' duration."""
        asked = self._clock.monotonic()
        self.transaction = self.connection.begin()
        waited = self._clock.monotonic() - asked
        self.unit.waited += waited
        self.unit.deadline += waited

    def _roll_back(self) -> None:
        connection, transaction = self.connection, self.transaction
        try:
            # A transaction ended by a handler is rolled back by the pool when the connection returns to it.
            if connection.get_transaction() is transaction:
                transaction.rollback()
        except Exception:
            # A handler may have closed the connection; then there is nothing left to discard.
            with suppress(Exception):
                connection.invalidate()


def end_run(error: Exception, doing: str) -> NoReturn:
    """Raise the reason why a run ends with an error.

    Args:
        error: of the engine, a strategy, a driver or the database.
        doing: the step that failed.

    Raises:
        Culprits, NeedsIsolation, HiddenCommit: the error itself.
        UnknownCulprit: the same, or an error about data.
        InfrastructureError, StrategyBug: the same, or another error.
    """
    if isinstance(error, _REASONS):
        try:
            raise error
        finally:
            del error  # this frame is in its traceback: they would hold each other, and the unit, in memory
    if not is_infrastructure(error) and classify(error) is Fault.DATA:
        raise UnknownCulprit(describe(error)) from error
    raise as_engine_error(error, doing) from error
