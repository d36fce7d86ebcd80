"""The loop of one run: decide, handle, record, item by item in arrival order; and who is to blame when one fails."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from oncemq.errors import InfrastructureError, SessionOwned, TimeLimitExceeded
from oncemq.handler import BoundHandler
from oncemq.observe.logs import now_handling
from oncemq.run.chain import Chain
from oncemq.run.judge import UnknownCulprit, describe, is_infrastructure, judge
from oncemq.run.limits import Slot
from oncemq.run.recorder import AnyRecorder
from oncemq.run.session import UnitSession, Watch
from oncemq.unit import Item, Run
from oncemq.verdict import PROCEED, RETURNED, Culprits, Verdict, retry


@dataclass(slots=True)
class Frame:
    """What surrounds the loop of one run.

    Args:
        session: the session that handlers share.
        watch: what is seen on its connection.
        careful: flush after every item, so that a failing flush has one culprit.
        unflushed: items whose handler ran since the last flush; one of them is to blame when it fails.
    """

    session: UnitSession
    watch: Watch
    careful: bool
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
        new, deleted = session.counts()
        statements, reads = watch.statements, watch.reads
        slot.started = now
        now_handling(self._consumer, item.envelope)
        try:
            item.result = self._call(run, item)
        except BaseException as error:
            watch.handling = False
            if self._can_drop(error, frame, statements) and session.untouched(new, deleted):
                self.dropped += 1
                return judge(error)
            self._blame(item, watch, error, now)
        finally:
            watch.handling = False
            slot.started = 0.0
            now_handling("", None)
            if slot.overdue == now:
                slot.wait_for_cancel()
            if watch.reads > reads:
                self.eager = True
        fault = watch.doomed or session.misuse()
        if fault is not None:
            self._blame(item, watch, fault, now)
        if slot.overdue == now:
            raise Culprits({item: overdue()})
        frame.unflushed.append(item)
        return PROCEED

    def _can_drop(self, error: BaseException, frame: Frame, statements: int) -> bool:
        watch = frame.watch
        clean = watch.doomed is None and watch.statements == statements and not watch.flush_failed
        return clean and not is_infrastructure(error)

    def _blame(self, item: Item, watch: Watch, error: BaseException, started: float) -> NoReturn:
        cause = watch.doomed or error
        if self._slot.overdue == started:
            raise Culprits({item: overdue()}) from error
        if is_infrastructure(cause):
            raise InfrastructureError(describe(cause)) from cause
        own_doing = isinstance(cause, SessionOwned)
        if watch.crowded and not own_doing and (watch.doomed is not None or watch.flush_failed):
            # A flush inside this handler may have failed on a neighbour's objects.
            raise UnknownCulprit(describe(cause)) from cause
        raise Culprits({item: judge(cause if own_doing else error)}) from error


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
            raise InfrastructureError(describe(error)) from error
        if len(frame.unflushed) == 1:
            raise Culprits({frame.unflushed[0]: judge(error)}) from error
        raise UnknownCulprit(describe(error)) from error
    frame.unflushed.clear()


def overdue() -> Verdict:
    """Return the verdict on an item whose handler exceeded its soft limit."""
    error = TimeLimitExceeded("the handler took longer than its soft time limit")
    return retry(str(error), error=error)
