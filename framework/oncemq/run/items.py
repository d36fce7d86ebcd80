"""The loop of one run: decide, handle, record, item by item in arrival order; and who is to blame when one fails."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from oncemq.errors import InfrastructureError, SessionOwned, TimeLimitExceeded
from oncemq.handler import BoundHandler
from oncemq.observe.logs import now_handling
from oncemq.retry.classify import is_stale, is_unique_violation
from oncemq.run.chain import Chain
from oncemq.run.guard import Guard
from oncemq.run.judge import UnknownCulprit, describe, is_infrastructure, judge
from oncemq.run.limits import Slot
from oncemq.run.recorder import AnyRecorder
from oncemq.run.session import UnitSession
from oncemq.run.watch import Watch
from oncemq.run.whose import Suspicion, is_units
from oncemq.unit import Item, Run
from oncemq.verdict import PROCEED, RETURNED, Culprits, Verdict, retry


@dataclass(slots=True)
class Frame:
    """What surrounds the loop of one run.

    Args:
        session: the session that handlers share.
        watch: what is seen on its connection.
        careful: flush after every item, so that a failing flush has one culprit.
        sound: whether the transaction can go on.
        unflushed: items whose handler ran since the last flush; one of them is to blame when it fails.
    """

    session: UnitSession
    watch: Watch
    careful: bool
    sound: Callable[[], bool]
    unflushed: list[Item] = field(default_factory=list)


class ItemLoop:
    """Runs the items of transactional runs.

    Attributes:
        eager: a handler has been seen to read, which flushes anyway; so items are flushed one by one.
        dropped: items that were left out while their run went on, since the last look.
        one_by_one: the handler is called for each item.
    """

    one_by_one = True

    def __init__(
        self,
        chain: Chain,
        handler: BoundHandler,
        monotonic: Callable[[], float],
        recorder: AnyRecorder,
        slot: Slot,
    ) -> None:
        self._chain = chain
        self._call = handler.call
        self._call_batch = handler.call_batch
        self._monotonic = monotonic
        self._recorder = recorder
        self._slot = slot
        self.eager = False
        self.dropped = 0
        self._consumer = ""

    def run(self, run: Run, frame: Frame) -> None:
        """Give every item of `run` a verdict.

        Raises:
            Culprits: roll back; these items get these verdicts.
            UnknownCulprit: roll back; nobody can say whose fault it is.
            InfrastructureError: roll back; nobody's fault.
        """
        decide, record, index, clock = (
            self._chain.decide,
            self._chain.record,
            self._recorder.index,
            self._monotonic,
        )
        self._consumer = run.consumer.partition(".")[2]
        deadline, held, started = run.unit.deadline, set[str](), False
        for position, item in enumerate(run.items, 1):
            now = clock()
            if item.key in held or (started and now > deadline):
                item.verdict = RETURNED
                held.add(item.key)
                continue
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

    def _handle(self, run: Run, item: Item, frame: Frame, now: float) -> Verdict:
        session, watch, slot = frame.session, frame.watch, self._slot
        if (frame.careful or self.eager) and session.pending():
            flush(frame)
        watch.enter(crowded=session.pending())
        call = _Call(run, item, frame, now)
        reads = watch.reads
        slot.started = now
        now_handling(self._consumer, item.envelope)
        try:
            item.result = self._call(run, item)
            if call.guard is not None:
                call.guard.release(frame.unflushed)
        except BaseException as error:
            watch.handling = False
            return self._failed(call, error)
        finally:
            watch.handling, watch.first = False, None
            run.unit.spoke += call.spoke
            slot.started = 0.0
            now_handling("", None)
            if slot.overdue == now:
                slot.wait_for_cancel()
            if watch.reads > reads:
                self.eager = True
        fault = watch.doomed or session.misuse()
        if fault is not None:
            return self._undo_or_blame(call, fault)
        if slot.overdue == now:
            raise Culprits({item: overdue()})
        frame.unflushed.append(item)
        return PROCEED

    def _failed(self, call: "_Call", error: BaseException) -> Verdict:
        if self._can_drop(call, error) and call.frame.session.take_back(call.new, call.deleted):
            self.dropped += 1
            return judge(error)
        return self._undo_or_blame(call, error)

    def _can_drop(self, call: "_Call", error: BaseException) -> bool:
        watch = call.frame.watch
        clean = watch.doomed is None and not call.spoke and not watch.flush_failed
        return clean and not is_units(error, watch.doomed, call.frame.sound)

    def _undo_or_blame(self, call: "_Call", error: BaseException) -> Verdict:
        """Return the verdict on an item whose doing was taken back alone; else raise that the run must be."""
        call.run.unit.late += call.spoke
        # Asked before anything is undone.
        units = is_units(error, call.frame.watch.doomed, call.frame.sound)
        if not self._can_undo(call, error) or not call.undo(error):
            self._blame(call.item, call.frame.watch, error, call.started, units=units)
        self.dropped += 1
        return judge(error)

    def _can_undo(self, call: "_Call", error: BaseException) -> bool:
        looked_at_again = is_stale(error) or (self._chain.second_look and is_unique_violation(error))
        return self._slot.overdue != call.started and not looked_at_again

    def _blame(
        self, item: Item, watch: Watch, error: BaseException, started: float, *, units: bool
    ) -> NoReturn:
        cause = watch.doomed or error
        if self._slot.overdue == started:
            raise Culprits({item: overdue()}) from error
        if units and watch.crowded and watch.flush_failed:
            raise InfrastructureError(describe(cause)) from cause
        if units:
            raise Suspicion(item, cause) from cause
        own_doing = isinstance(cause, SessionOwned)
        if watch.crowded and not own_doing and (watch.doomed is not None or watch.flush_failed):
            # A flush inside this handler may have failed on a neighbour's objects.
            raise UnknownCulprit(describe(cause)) from cause
        raise Culprits({item: judge(cause if own_doing else error)}) from error


class _Call:
    """One call of a handler, and how things stood when it began."""

    __slots__ = ("deleted", "frame", "guard", "item", "new", "run", "started", "statements")

    def __init__(self, run: Run, item: Item, frame: Frame, started: float) -> None:
        self.run, self.item, self.frame, self.started = run, item, frame, started
        self.new, self.deleted = frame.session.counts()
        self.statements = frame.watch.statements
        self.guard = Guard(frame.session, frame.watch) if run.unit.guarded else None

    @property
    def spoke(self) -> bool:
        """Whether the handler has sent statements itself."""
        return self.frame.watch.statements > self.statements

    def undo(self, error: BaseException) -> bool:
        """Take back all that the handler did, and nothing else; returns whether the run can go on."""
        guard, frame = self.guard, self.frame
        return guard is not None and guard.undo(error, frame.unflushed) and frame.sound()


def flush(frame: Frame) -> None:
    """Flush what handlers left pending.

    Raises:
        Culprits: it failed, and only one item can be to blame.
        UnknownCulprit: it failed, and several can.
        InfrastructureError: the database failed.
    """
    try:
        frame.session.flush()
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
