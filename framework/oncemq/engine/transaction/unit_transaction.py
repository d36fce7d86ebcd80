"""One transaction: load, the items, flush, save, confirm, commit – or a roll-back with the reason."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NoReturn

from sqlalchemy import Engine, Table, false, literal, select

from oncemq.common.clock import Clock
from oncemq.contracts.unit import Run, Unit
from oncemq.contracts.verdict import PROCEED, Culprits, reject
from oncemq.engine.base.items import history_rows, make_items
from oncemq.engine.base.strategy_chain import Chain
from oncemq.engine.consumer.batch_sizing import IsolationRate
from oncemq.engine.crash.flight_recorder import FLUSHING, IDLE, AnyRecorder
from oncemq.engine.crash.time_limits import TimeLimitSlot
from oncemq.engine.outbox.relay import Relay
from oncemq.engine.transaction.connection_watch import install
from oncemq.engine.transaction.item_loop import ItemLoop
from oncemq.engine.transaction.open_transaction import OpenTransaction, end_run
from oncemq.engine.transaction.savepoint_batches import SavepointBatches, TransactionResult
from oncemq.engine.transaction.transaction_guard import HiddenCommit
from oncemq.errors import InfrastructureError
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.records import exclusive_units as lanes
from oncemq.ledger.records import history
from oncemq.ledger.sql.lock_waits import only_a_moment
from oncemq.message.envelope import Delivery
from oncemq.message.reader import Reader
from oncemq.retry.classify import is_lock_timeout

Point = Callable[[str], None]
"""Called with the name of each kill point that a run reaches; tests kill the process there."""


@dataclass(frozen=True, slots=True)
class RunMode:
    """How deliveries are run.

    Args:
        flush_each: find the item at fault.
        lock_nowait: fail instead of waiting for a lock.
        isolated: one handler call, which may change settings of the connection.
    """

    flush_each: bool = False
    lock_nowait: bool = False
    isolated: bool = False


class UnitTransaction:
    """Runs deliveries of a unit in one transaction.

    Args:
        engine: the app's database.
        chain: the strategies' hooks.
        reader: decodes payloads again for a second run.
        loop: executes runs.
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
        install(engine)
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
        self._tables = tables
        self._commits = commits
        self._divisible = chain.divisible and loop.one_by_one
        self.one_by_one = loop.one_by_one
        self.keys_matter = not chain.joins
        self.isolation = IsolationRate(always=isolate)
        self._batches = SavepointBatches(
            loop,
            reader,
            recorder,
            clock.monotonic,
            second_look=chain.second_look,
            keys_matter=self.keys_matter,
        )

    def run(
        self,
        unit: Unit,
        deliveries: Sequence[Delivery],
        mode: RunMode,
        *,
        exclusive: bool,
        look: bool = False,
    ) -> TransactionResult:
        """Return the committed runs; every delivery has its verdict, in a run or left out of it.

        Args:
            unit: the unit of these deliveries.
            deliveries: the deliveries to run.
            mode: how they are run.
            exclusive: wait until no other unit of the consumer is exclusive.
            look: be exclusive, too, if a unit of another process is.

        Raises:
            Culprits: rolled back; these items get these verdicts, the others may run again.
            UnknownCulprit: rolled back; the item at fault is unknown.
            NeedsIsolation: rolled back; its items must run isolated.
            InfrastructureError: rolled back, or the commit's answer was lost; no item is at fault.
            StrategyBug: rolled back; a strategy's hook failed.
        """
        items = make_items(deliveries, self._reader)
        self._recorder.begin([item.envelope for item in items])
        started, waited = self._clock.monotonic(), unit.waited
        divided = self._divisible and not (mode.flush_each or exclusive or mode.isolated)
        every = unit.savepoint_every if divided else None
        opened = OpenTransaction(
            self._engine,
            unit,
            self._slot,
            self._clock,
            isolated=mode.isolated,
            always_clean=mode.isolated and self.isolation.always,
        )
        try:
            with opened, only_a_moment(opened.connection) if mode.lock_nowait else nullcontext():
                joined = self._prepare(opened, exclusive=exclusive, look=look)
                if every is None or every >= len(items):
                    done = TransactionResult([self._loop.run(opened, items, flush_each=mode.flush_each)])
                else:
                    done = self._batches.run(opened, items, every)
                self._finish(done.runs)
                opened.require_whole()
                self._point("before-commit")
                opened.commit()
            self.isolation.learn(items=len(items), needed=len(items) if opened.watch.settings else 0)
        except Exception as error:
            self._not_committed(error, unit, started, waited)
        finally:
            self._recorder.index[0] = IDLE
            if opened.watch.commits:
                self._commits()
        done.others_exclusive = joined
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

    def _prepare(self, opened: OpenTransaction, *, exclusive: bool, look: bool) -> bool:
        """Begin; returns whether the unit became exclusive because another process's unit is."""
        if not self._chain.loads:
            # A driver may begin with the first statement only; without one the transaction looks ended at its end.
            opened.connection.execute(select(1))
        joined = look and not exclusive and lanes.others_exclusive(opened.connection, opened.unit.consumer)
        if exclusive or joined:
            lanes.enter_exclusive(opened.connection, opened.unit.consumer)
        return joined

    def _not_committed(self, error: Exception, unit: Unit, started: float, waited: float) -> NoReturn:
        """Give the unit the time for another run, and raise the reason of the roll-back."""
        # Time in which nothing was done; otherwise the next run would have none left.
        lost = self._clock.monotonic() - started - (unit.waited - waited)
        unit.deadline += lost
        if isinstance(error, InfrastructureError) and is_lock_timeout(error.__cause__ or error):
            # How long others hold their locks is unrelated to the right size of our units.
            unit.waited += lost
        # Items that parts could not save are left to failure isolation: whole units, in the order that strategies lock.
        unit.savepoint_every, unit.guarded = None, False
        if isinstance(error, HiddenCommit):
            self._take_back(error)
        try:
            end_run(error, "the transaction")
        finally:
            del error  # see end_run

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

    def _finish(self, runs: Sequence[Run]) -> None:
        """Write what comes after every run of the transaction, and let the strategies confirm it."""
        if len(runs) > 1:
            self._recorder.begin([item.envelope for run in runs for item in run.items])
            self._recorder.index[0] = FLUSHING
        doing = "the ledger's history"
        try:
            for run in runs:
                if any(item.verdict is not PROCEED for item in run.items):
                    self._note(run)
            doing = "the outbox"
            # After every lock that makes this transaction wait for another of the key: numbers follow that order.
            for run in runs:
                if self._relay is not None and run.outgoing:
                    self._relay.store(run)
                run.outgoing = None
            doing = "confirm"
            for confirm in self._chain.confirms:
                for run in runs:
                    confirm(run)
        except Exception as error:
            end_run(error, doing)
        self._point("saved")

    def _note(self, run: Run) -> None:
        rows = history_rows(run, self._clock.now())
        if rows:
            history.add(run.connection, rows)

    def _after_commit(self, runs: Sequence[Run]) -> None:
        self._point("committed")
        for run in runs:
            if self._relay is not None and run.published:
                self._quietly(self._relay.committed, run, "sending what handlers published")
            for committed in self._chain.committeds:
                self._quietly(committed, run, "work after a commit")

    def _quietly(self, hook: Callable[[Run], None], run: Run, doing: str) -> None:
        try:
            hook(run)
        except Exception as error:
            self._failed(doing, error)
