"""One run in an open transaction: load, then decide, handle and record each item, flush, save.

Items are handled in arrival order; a failure is attributed to an item.
"""

from collections.abc import Callable, Sequence
from typing import NoReturn

from sqlalchemy.exc import DBAPIError, PendingRollbackError

from oncemq.common.error_text import is_a
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import PROCEED, RETURNED, Culprits, Verdict, retry
from oncemq.engine.base.error_verdicts import UnknownCulprit, describe, is_infrastructure, judge
from oncemq.engine.base.hook_points import nothing
from oncemq.engine.base.strategy_chain import Chain
from oncemq.engine.crash.flight_recorder import FLUSHING, AnyRecorder
from oncemq.engine.crash.time_limits import TimeLimitSlot
from oncemq.engine.transaction.error_attribution import Suspicion, is_units
from oncemq.engine.transaction.handler_session import Collector
from oncemq.engine.transaction.open_transaction import OpenTransaction, end_run
from oncemq.engine.transaction.transaction_guard import HiddenCommit, NeedsIsolation, Proof, SavedSettings
from oncemq.engine.transaction.unit_savepoint import UnitSavepoint
from oncemq.errors import HandlerFault, InfrastructureError, SessionOwned, TimeLimitExceeded
from oncemq.handler.binding import BoundHandler
from oncemq.observe.logs import now_handling
from oncemq.retry.classify import is_stale, is_unique_violation


class LoopContext:
    """Context of the loop of one run.

    Args:
        opened: the transaction.
        collector: holds objects that handlers only added.
        flush_each: flush after every item, so that a failing flush concerns one item.
        writes: write the strategies' records of earlier items to the database.

    Attributes:
        connection: the transaction's.
        watch: the observations on it.
        unflushed: items whose objects the collector holds; one of them is at fault when its flush fails.
        proof: that the transaction is still the one that began; only if a handler may bypass the observation.
        failed: the error of writing earlier items' work to the database; not caused by the handler.
    """

    __slots__ = (
        "_opened",
        "_writes",
        "collector",
        "connection",
        "failed",
        "flush_each",
        "proof",
        "unflushed",
        "watch",
    )

    def __init__(
        self,
        opened: OpenTransaction,
        collector: Collector,
        writes: Sequence[Callable[[Run], None]],
        *,
        flush_each: bool,
    ) -> None:
        self._opened = opened
        self._writes = writes
        self.collector = collector
        self.connection = opened.connection
        self.watch = opened.watch
        self.flush_each = flush_each
        self.unflushed: list[Item] = []
        self.proof: Proof | None = None
        self.failed: Exception | None = None

    def sound(self) -> bool:
        """Return whether the transaction can continue."""
        return self._opened.obstacle(self.collector) is None

    def bring(self, run: Run) -> None:
        """Write earlier items' work to the database: the next statement may read it.

        Raises:
            Culprits, UnknownCulprit, InfrastructureError, StrategyBug: it failed; the error is kept in `failed`.
        """
        watch = self.watch
        handling, watch.handling = watch.handling, False
        try:
            if self.collector.pending():
                flush(self)
            self._write(run)
        except Exception as error:
            self.failed = error
            watch.doom(error)
            raise
        finally:
            watch.handling = handling

    def _write(self, run: Run) -> None:
        try:
            for write in self._writes:
                write(run)
        except Exception as error:
            end_run(error, "write")


class ItemLoop:
    """Executes runs.

    Args:
        chain: the strategies' hooks.
        handler: the user's function.
        monotonic: seconds, for the unit's deadline.
        recorder: the worker's flight recorder.
        slot: where the watchdog finds when a handler began.
        point: called with each kill point reached.

    Attributes:
        dropped: items that were removed while their run continued, since the last look.
        one_by_one: the handler is called for each item.
    """

    one_by_one = True

    def __init__(
        self,
        chain: Chain,
        handler: BoundHandler,
        monotonic: Callable[[], float],
        recorder: AnyRecorder,
        slot: TimeLimitSlot,
        point: Callable[[str], None] = nothing,
    ) -> None:
        self._chain = chain
        self._point = point
        self._call = handler.call
        self._call_batch = handler.call_batch
        self._monotonic = monotonic
        self._recorder = recorder
        self._slot = slot
        self.dropped = 0
        self._consumer = ""

    def run(self, opened: OpenTransaction, items: Sequence[Item], *, flush_each: bool) -> Run:
        """Return a run with a verdict for each of `items`; its effects are flushed and saved.

        Args:
            opened: the transaction.
            items: of the run.
            flush_each: find the item at fault.

        Raises:
            Culprits: roll back; these items get these verdicts.
            UnknownCulprit: roll back; the item at fault is unknown.
            NeedsIsolation: roll back; these items must run isolated.
            HiddenCommit: a handler has ended the transaction.
            InfrastructureError: roll back; no item is at fault.
            StrategyBug: roll back; a strategy's hook failed.
        """
        chain, connection, doing = self._chain, opened.connection, "load"
        collector = Collector(connection)
        try:
            run = Run(opened.unit, items, connection, collector)
            frame = LoopContext(opened, collector, chain.writes, flush_each=flush_each)
            for load in chain.loads:
                load(run, items)
            # Reflecting the user's tables may have turned off error events.
            connection.forget_options()
            self._point("loaded")
            doing = "decide or record"
            if opened.watch.isolated:
                self._isolated(run, frame)
            else:
                self._run_items(run, frame)
            self._recorder.index[0] = FLUSHING
            flush(frame)
            self._point("handled")
            doing = "save"
            for save in chain.saves:
                save(run)
            opened.require_no_strays()
            opened.require_whole(collector)
        except Exception as error:
            end_run(error, doing)
        finally:
            opened.watch.handling = False
            collector.discard()
        return run

    def _isolated(self, run: Run, frame: LoopContext) -> None:
        """Run a call that may bypass the observation; afterwards the transaction must be the one that began."""
        saved = SavedSettings(run.connection)
        proof = frame.proof = Proof(run.connection, run.unit.owner)
        try:
            self._run_items(run, frame)
        except HiddenCommit:
            raise
        except Exception as error:
            if frame.watch.settings and proof.broken_by(error):
                raise HiddenCommit(run, run.items) from error
            raise
        if frame.watch.settings:
            saved.restore()

    def _run_items(self, run: Run, frame: LoopContext) -> None:
        """Give every item of `run` a verdict; raises as `run`."""
        decide, record, index, clock = (
            self._chain.decide,
            self._chain.record,
            self._recorder.index,
            self._monotonic,
        )
        self._consumer = run.consumer.partition(".")[2]
        deadline, held, started = run.unit.deadline, set[str](), False
        reads_between = self._chain.reads_between
        for position, item in enumerate(run.items, 1):
            now = clock()
            if item.key in held or (started and now > deadline):
                item.verdict = RETURNED
                held.add(item.key)
                continue
            if started and reads_between:
                frame.bring(run)
            verdict = decide(run, item)
            if verdict is PROCEED:
                index[0] = position
                started = True
                verdict = self._handle(run, item, frame, now)
            item.verdict = verdict
            if verdict.final:
                record(run, item)
            elif verdict.holds_key:
                held.add(item.key)

    def _handle(self, run: Run, item: Item, frame: LoopContext, now: float) -> Verdict:
        watch, slot = frame.watch, self._slot
        call = Call(run, (item,), frame, now)
        slot.started = now
        now_handling((self._consumer, item.envelope))
        try:
            item.result = self._call(run, item)
            waits = call.complete()
        except BaseException as error:
            watch.handling = False
            return self._failed(call, error)
        finally:
            # First: lines of what follows are about the unit, and must not carry this message's fields.
            now_handling(None)
            call.over()
            slot.started = 0.0
            if slot.overdue == now:
                slot.wait_for_cancel()
        fault = call.fault()
        if fault is not None:
            return self._undo_or_blame(call, fault, swallowed=True)
        if slot.overdue == now:
            raise Culprits({item: overdue()})
        call.keep(waits=waits)
        item.wrote = watch.writes > call.writes
        return PROCEED

    def _failed(self, call: "Call", error: BaseException) -> Verdict:
        if self._can_drop(call, error):
            call.session.end()
            self.dropped += 1
            return judge(error)
        return self._undo_or_blame(call, error)

    def _can_drop(self, call: "Call", error: BaseException) -> bool:
        watch = call.frame.watch
        clean = watch.doomed is None and not call.spoke
        return clean and not is_units(error, watch.doomed, call.frame.sound, raw=watch.raw)

    def _undo_or_blame(self, call: "Call", error: BaseException, *, swallowed: bool = False) -> Verdict:
        """Return the verdict on an item whose work alone was rolled back; else raise that the run must be."""
        call.run.unit.late += call.spoke
        # Checked before anything is rolled back.
        watch = call.frame.watch
        units = is_units(error, watch.doomed, call.frame.sound, raw=watch.raw)
        if not self._can_undo(call, error) or not call.undo(error):
            self._blame(call, error, units=units, swallowed=swallowed)
        self.dropped += 1
        return _judge(call, error, swallowed=swallowed)

    def _can_undo(self, call: "Call", error: BaseException) -> bool:
        looked_at_again = is_stale(error) or (self._chain.second_look and is_unique_violation(error))
        return self._slot.overdue != call.started and not looked_at_again

    def _blame(self, call: "Call", error: BaseException, *, units: bool, swallowed: bool = False) -> NoReturn:
        watch, items = call.frame.watch, call.items
        if call.frame.failed is not None:
            raise call.frame.failed
        cause = watch.doomed or error
        if is_a(cause, NeedsIsolation):
            raise NeedsIsolation(cause.why, items) from cause
        if len(items) > 1:
            self._blame_several(call, cause, units=units)
        (item,) = items
        if self._slot.overdue == call.started:
            raise Culprits({item: overdue()}) from error
        if units:
            raise Suspicion(item, cause) from cause
        own_doing = is_a(cause, SessionOwned)
        raise Culprits({item: _judge(call, cause if own_doing else error, swallowed=swallowed)}) from error

    def _blame_several(self, call: "Call", cause: BaseException, *, units: bool) -> NoReturn:
        if self._slot.overdue == call.started:
            late = overdue()
            raise UnknownCulprit(late.reason) from late.error
        if units:
            raise InfrastructureError(describe(cause)) from cause
        raise UnknownCulprit(describe(cause)) from cause


class Call:
    """One handler call with its own session, and the state when it began."""

    __slots__ = ("frame", "guard", "items", "run", "session", "started", "statements", "writes")

    def __init__(self, run: Run, items: Sequence[Item], frame: LoopContext, started: float) -> None:
        self.run, self.items, self.frame, self.started = run, items, frame, started
        watch = frame.watch
        self.guard: UnitSavepoint | None = None
        watch.refused, watch.went_on = None, False
        self.statements, self.writes = watch.statements, watch.writes
        self.session = run.session = frame.collector.session(frame.connection, watch, items)
        watch.first = self._first
        watch.handling = True

    @property
    def spoke(self) -> bool:
        """Whether the handler has sent statements itself."""
        return self.frame.watch.statements > self.statements

    def complete(self) -> bool:
        """Flush the handler's changes, unless their insert may be deferred; returns whether it is."""
        session, frame = self.session, self.frame
        if not (frame.flush_each or self.spoke) and frame.collector.takes(session):
            return True
        if frame.watch.doomed is None and session.pending():
            session.flush()
        return False

    def fault(self) -> BaseException | None:
        """Return why the handler's work cannot be kept, although it has returned; None if it can."""
        watch = self.frame.watch
        if (
            watch.doomed is None
            and watch.statements == self.statements
            and not self.session._nested_transaction
        ):
            return None
        if self.guard is not None and self.guard.lost and self.frame.watch.doomed is None:
            return self.frame.watch.refused or HandlerFault(
                "the handler went on after a flush that failed, with which SQLAlchemy rolls back what it had written: let "
                "the error out, or write with session.begin_nested()"
            )
        return self.frame.watch.doomed or self.session.misuse()

    def over(self) -> None:
        """Attribute later events to the framework, not to the handler."""
        watch, run = self.frame.watch, self.run
        watch.handling, watch.first = False, None
        self.frame.connection.forget_options()
        if watch.statements > self.statements:
            run.unit.spoke += 1
        run.session = self.frame.collector
        self.session.refuse_all()

    def keep(self, *, waits: bool) -> None:
        """Keep the handler's work.

        Raises:
            HiddenCommit: it has ended the transaction.
        """
        frame, session = self.frame, self.session
        if waits:
            if session._new:
                frame.collector.take(session)
                frame.unflushed += self.items
        else:
            self.run.written += frame.watch.writes - self.writes
        frame.collector.end(session, keep=self.guard is None)
        if self.guard is not None:
            self.guard.release()
        if frame.proof is not None and frame.watch.settings and not frame.proof.holds():
            # Before anything is recorded of these items.
            raise HiddenCommit(self.run, self.items)

    def undo(self, error: BaseException) -> bool:
        """Roll back all of the handler's work, and nothing else; returns whether the run can continue."""
        guard, frame = self.guard, self.frame
        if guard is None or frame.failed is not None or is_infrastructure(error):
            return False
        doomed = frame.watch.doomed
        if (doomed is not None and not isinstance(doomed, DBAPIError)) or not guard.undo():
            return False
        self.session.end()
        return frame.sound()

    def _first(self) -> None:
        """Write earlier work to the database, which the handler's first statement may read."""
        self.frame.bring(self.run)
        if self.run.unit.guarded and not self.frame.watch.isolated:
            self.guard = UnitSavepoint(self.frame.connection, self.frame.watch)


def _judge(call: Call, error: BaseException, *, swallowed: bool) -> Verdict:
    watch = call.frame.watch
    if is_a(error, PendingRollbackError) and watch.refused is not None:
        # It only reports that there was an earlier error.
        error, swallowed = watch.refused, True
    verdict = judge(error)
    if (swallowed or watch.went_on) and is_a(error, DBAPIError):
        text = "the handler went on after an error that ended its transaction: write with session.begin_nested(): …"
        return retry(f"{text}; {verdict.reason}", error=error)
    return verdict


def flush(frame: LoopContext) -> None:
    """Flush what handlers left pending.

    Raises:
        Culprits: it failed, and only one item can be at fault.
        UnknownCulprit: it failed, and several can.
        InfrastructureError: the database failed.
    """
    try:
        frame.collector.flush()
    except Exception as error:
        if is_infrastructure(error):
            if len(frame.unflushed) == 1:
                raise Suspicion(frame.unflushed[0], error) from error
            raise InfrastructureError(describe(error)) from error
        if len(frame.unflushed) == 1:
            raise Culprits({frame.unflushed[0]: judge(error)}) from error
        raise UnknownCulprit(describe(error)) from error
    frame.unflushed.clear()


def overdue() -> Verdict:
    """Return the verdict on an item whose handler exceeded its soft limit."""
    error = TimeLimitExceeded("the handler took longer than its soft time limit")
    return retry(str(error), error=error)
