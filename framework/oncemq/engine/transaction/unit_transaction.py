"""One transaction: load, the items, flush, save, confirm, commit – or a roll-back with the reason."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import NoReturn

from sqlalchemy import Connection, Engine, RootTransaction, Table, false, literal, select

from oncemq.common.clock import Clock
from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import Culprits, reject
from oncemq.engine.base.error_verdicts import UnknownCulprit, describe, is_infrastructure
from oncemq.engine.base.items import history_rows, make_items
from oncemq.engine.base.strategy_chain import Chain
from oncemq.engine.crash.flight_recorder import FLUSHING, IDLE, AnyRecorder
from oncemq.engine.crash.time_limits import TimeLimitSlot
from oncemq.engine.outbox.relay import Relay
from oncemq.engine.transaction.connection_watch import (
    ConnectionWatch,
    UnitConnection,
    install,
    watch_connection,
)
from oncemq.engine.transaction.handler_session import obstacle
from oncemq.engine.transaction.isolation import (
    HiddenCommit,
    Home,
    IsolationRate,
    NeedsIsolation,
    Proof,
)
from oncemq.engine.transaction.item_loop import ItemLoop, LoopContext, flush
from oncemq.engine.transaction.savepoint_batches import OpenTransaction, SavepointBatches, TransactionResult
from oncemq.engine.transaction.statement_cancel import canceller
from oncemq.errors import InfrastructureError, StrategyBug
from oncemq.ledger.database.connect import READ_ONLY, clean
from oncemq.ledger.records import exclusive_units as lanes
from oncemq.ledger.records import history
from oncemq.ledger.sql.lock_waits import only_a_moment
from oncemq.message.envelope import Delivery
from oncemq.message.reader import Reader
from oncemq.retry.classify import Fault, classify, is_lock_timeout

_LOST = frozenset({Fault.TRANSIENT, Fault.OFFLINE})

Point = Callable[[str], None]
"""Called with the name of each kill point that a run reaches; tests kill the process there."""


class UnitTransaction:
    """Runs deliveries of a unit in one transaction.

    Args:
        engine: the app's database.
        chain: the strategies' hooks.
        reader: decodes payloads again for a second run.
        loop: decides and handles the items.
        recorder: the worker's flight recorder.
        slot: where the watchdog finds the function that cancels a statement.
        clock: the source of time.
        failed: called with errors in `committed`, which change nothing.
        point: called with each kill point reached.
        relay: stores and sends messages published by handlers; None where they cannot publish.
        tables: the ledger tables that the strategies use.
        isolate: every handler call is alone in its transaction, on a connection that is reset afterwards.
        commits: called when a handler called `session.commit()`.

    Attributes:
        one_by_one: the handler is called for each item.
        keys_matter: decisions about an item may depend on earlier ones of its key, which are not saved yet.
        isolation: how often messages had to run alone.
    """

    def __init__(
        self,
        engine: Engine,
        chain: Chain,
        reader: Reader,
        loop: ItemLoop,
        recorder: AnyRecorder,
        slot: TimeLimitSlot,
        clock: Clock,
        failed: Callable[[str, BaseException], None],
        point: Point,
        relay: Relay | None = None,
        tables: Sequence[Table] = (),
        *,
        isolate: bool = False,
        commits: Callable[[], None] = lambda: None,
    ) -> None:
        self._commits = commits
        install(engine)
        self._tables = tables
        self._engine = engine
        self._chain = chain
        self._reader = reader
        self._loop = loop
        self._recorder = recorder
        self._slot = slot
        self._clock = clock
        self._failed = failed
        self._point = point
        self._relay = relay
        self._divisible = chain.divisible and loop.one_by_one
        self.one_by_one = loop.one_by_one
        self.keys_matter = not chain.joins
        self.isolation = IsolationRate(always=isolate)
        self._parts = SavepointBatches(
            self._work,
            reader,
            recorder,
            clock.monotonic,
            second_look=chain.second_look,
            keys_matter=self.keys_matter,
            write=self._write if chain.writes else None,
        )

    def run(
        self,
        unit: Unit,
        deliveries: Sequence[Delivery],
        *,
        flush_each: bool,
        exclusive: bool,
        lock_nowait: bool = False,
        isolated: bool = False,
    ) -> TransactionResult:
        """Return the committed runs; every delivery has its verdict, in a run or left out of it.

        Args:
            unit: the unit of these deliveries.
            deliveries: the deliveries to run.
            flush_each: find the item at fault.
            exclusive: wait until no other unit of the consumer is exclusive.
            lock_nowait: fail instead of waiting for a lock.
            isolated: one handler call, which may change settings of the connection.

        Raises:
            Culprits: rolled back; these items get these verdicts, the others may run again.
            UnknownCulprit: rolled back; the item at fault is unknown.
            NeedsIsolation: rolled back; its items must run isolated.
            InfrastructureError: rolled back, or the commit's answer was lost; no item is at fault.
            StrategyBug: rolled back; a strategy's hook failed.
        """
        items = make_items(deliveries, self._reader)
        self._recorder.begin([item.envelope for item in items])
        started, waited, committed, locked = self._clock.monotonic(), unit.waited, False, False
        try:
            connection = UnitConnection(self._engine)
            with connection:
                done = self._in_transaction(
                    connection,
                    unit,
                    items,
                    flush_each=flush_each,
                    exclusive=exclusive,
                    lock_nowait=lock_nowait,
                    isolated=isolated,
                )
            committed = True
        except InfrastructureError as error:
            locked = is_lock_timeout(error.__cause__ or error)
            raise
        except HiddenCommit as hidden:
            self._take_back(hidden)
        except (Culprits, UnknownCulprit, StrategyBug, NeedsIsolation):
            raise
        except Exception as error:
            self._raise_for(error, "the transaction")
        finally:
            self._recorder.index[0] = IDLE
            if not committed:
                # Time in which nothing was done; otherwise the next run would have none left.
                lost = self._clock.monotonic() - started - (unit.waited - waited)
                unit.deadline += lost
                # How long others hold their locks is unrelated to the right size of our units.
                unit.waited += lost if locked else 0.0
                # Items that parts could not save are left to failure isolation: whole units, in the order that strategies lock.
                unit.savepoint_every, unit.guarded = None, False
        self._after_commit(done.runs)
        return done

    def database_answers(self) -> bool:
        """Return whether the framework's own tables can be used now; if so, a failure may be caused by one message."""
        try:
            with self._engine.connect().execution_options(**{READ_ONLY: True}) as connection:
                for table in (history.TABLE, *self._tables):
                    connection.execute(select(literal(1)).select_from(table).where(false()))
        except Exception:
            return False
        return True

    def _in_transaction(
        self,
        connection: UnitConnection,
        unit: Unit,
        items: list[Item],
        *,
        flush_each: bool,
        exclusive: bool,
        lock_nowait: bool,
        isolated: bool,
    ) -> TransactionResult:
        watch = ConnectionWatch(isolated=isolated)
        transaction = self._begin(connection, unit)
        unwatch = watch_connection(connection, watch)
        self._slot.cancel = canceller(self._engine, connection)
        committed = False
        try:
            if exclusive:
                lanes.enter_exclusive(connection, unit.consumer)
            scene = OpenTransaction(unit, connection, transaction, watch, flush_each=flush_each)
            divided = self._divisible and not flush_each and not exclusive and not isolated
            with only_a_moment(connection) if lock_nowait else nullcontext():
                done = self._parts.run(scene, items, unit.savepoint_every if divided else None)
                self._finish(done.runs)
                reason = obstacle(connection, transaction, watch)
                if reason is not None:
                    raise UnknownCulprit(str(reason)) from reason
                self._point("before-commit")
                transaction.commit()
                committed = True
            self.isolation.learn(items=len(items), needed=len(items) if watch.settings else 0)
            return done
        finally:
            self._slot.cancel = None
            unwatch()
            _leave(connection, transaction, committed=committed)
            if watch.commits:
                self._commits()
            if watch.settings or (isolated and self.isolation.always):
                clean(connection, thoroughly=watch.raw)

    def _begin(self, connection: Connection, unit: Unit) -> RootTransaction:
        """Begin; with a single writer, waiting for others is not part of our items' duration."""
        asked = self._clock.monotonic()
        transaction = connection.begin()
        waited = self._clock.monotonic() - asked
        unit.waited += waited
        unit.deadline += waited
        if not self._chain.loads:
            # A driver may begin with the first statement only; without one the transaction looks ended at its end.
            connection.execute(select(1))
        return transaction

    def _work(self, run: Run, frame: LoopContext) -> None:
        for load in self._chain.loads:
            self._guard(lambda load=load: load(run, run.items), "load")  # type: ignore[misc]
        # Reflecting the user's tables may have turned off error events.
        frame.connection.forget_options()
        self._point("loaded")
        if frame.watch.isolated:
            self._isolated(run, frame)
        else:
            self._guard(lambda: self._loop.run(run, frame), "decide or record")
        self._recorder.index[0] = FLUSHING
        flush(frame)
        self._point("handled")
        for save in self._chain.saves:
            self._guard(lambda save=save: save(run), "save")  # type: ignore[misc]

    def _isolated(self, run: Run, frame: LoopContext) -> None:
        """Run a call that may bypass the observation; afterwards the transaction must be the one that began."""
        home = Home(run.connection)
        proof = frame.proof = Proof(run.connection, run.unit.owner)
        try:
            self._guard(lambda: self._loop.run(run, frame), "decide or record")
        except HiddenCommit:
            raise
        except Exception as error:
            # A roll-back by SQLAlchemy itself, after a failed flush, is not hidden; nor is a lost connection,
            # or a deadlock that makes MySQL roll back everything.
            lost = classify(error.__cause__ or error) in _LOST
            open_still = frame.watch.settings and not lost and run.connection.in_transaction()
            if open_still and not proof.held():
                raise HiddenCommit(run, run.items) from error
            raise
        if frame.watch.settings:
            home.come_back()

    def _take_back(self, hidden: HiddenCommit) -> NoReturn:
        """Delete the records saved by a hidden commit, and charge its message, which must not run again."""
        run = hidden.run
        verdicts = {item: reject(str(hidden), error=hidden) for item in hidden.items}
        for item in hidden.items:
            item.verdict = verdicts[item]
        try:
            with self._engine.begin() as connection:
                left = Run(run.unit, run.items, connection, run.session)
                left.notes = run.notes
                for save in self._chain.saves:
                    save(left)
        except Exception as error:
            self._failed("taking back the records of a message whose handler committed them", error)
        raise Culprits(verdicts) from hidden

    def _write(self, run: Run) -> None:
        for write in self._chain.writes:
            self._guard(lambda write=write: write(run), "write")  # type: ignore[misc]

    def _finish(self, runs: Sequence[Run]) -> None:
        if len(runs) > 1:
            self._recorder.begin([item.envelope for run in runs for item in run.items])
            self._recorder.index[0] = FLUSHING
        for run in runs:
            self._guard(lambda run=run: self._note(run), "the ledger's history")  # type: ignore[misc]
        if self._relay is not None:
            # After every lock that makes this transaction wait for another of the key: numbers follow that order.
            relay = self._relay
            for run in runs:
                self._guard(lambda run=run: relay.store(run), "the outbox")  # type: ignore[misc]
        for confirm in self._chain.confirms:
            for run in runs:
                self._guard(lambda run=run, confirm=confirm: confirm(run), "confirm")  # type: ignore[misc]
        self._point("saved")

    def _note(self, run: Run) -> None:
        rows = history_rows(run, self._clock.now())
        if rows:
            history.add(run.connection, rows)

    def _guard(self, hook: Callable[[], None], doing: str) -> None:
        try:
            hook()
        except (Culprits, UnknownCulprit, InfrastructureError, StrategyBug, NeedsIsolation, HiddenCommit):
            raise
        except Exception as error:
            self._raise_for(error, doing)

    def _raise_for(self, error: Exception, doing: str) -> NoReturn:
        if is_infrastructure(error):
            raise InfrastructureError(describe(error)) from error
        if classify(error) is Fault.DATA:
            raise UnknownCulprit(describe(error)) from error
        raise StrategyBug(f"{doing} failed: {describe(error)}") from error

    def _after_commit(self, runs: Sequence[Run]) -> None:
        self._point("committed")
        for run in runs:
            if self._relay is not None:
                self._quietly(self._relay.committed, run, "sending what handlers published")
            for committed in self._chain.committeds:
                self._quietly(committed, run, "a strategy's committed hook")

    def _quietly(self, hook: Callable[[Run], None], run: Run, doing: str) -> None:
        try:
            hook(run)
        except Exception as error:
            self._failed(doing, error)


def _leave(connection: Connection, transaction: RootTransaction, *, committed: bool) -> None:
    """End the transaction; after a commit nothing may raise any more."""
    try:
        # A transaction ended by a handler is rolled back by the pool when the connection returns to it.
        if not committed and connection.get_transaction() is transaction:
            transaction.rollback()
    except Exception:
        # A handler may have closed the connection; then there is nothing left to discard.
        with suppress(Exception):
            connection.invalidate()
