"""Direct units: no engine transaction; every item runs, is recorded and judged independently of its neighbours."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from oncemq.common.clock import Clock
from oncemq.common.error_text import is_a
from oncemq.contracts.unit import Item, Outbox, Outgoing, Run, Unit
from oncemq.contracts.verdict import PROCEED, RETURNED, Culprits, Verdict, retry
from oncemq.engine.base.error_verdicts import as_engine_error, fault_of, judge
from oncemq.engine.base.items import make_item
from oncemq.engine.base.strategy_chain import Chain, Failed
from oncemq.engine.crash.flight_recorder import IDLE, AnyRecorder
from oncemq.engine.crash.time_limits import TimeLimitSlot
from oncemq.engine.workers.failure_isolation import UnitResult, open_deliveries
from oncemq.engine.workers.outcome_writer import Ended, OutcomeWriter, UnitOutcomes
from oncemq.errors import InfrastructureError, StrategyBug, TimeLimitExceeded
from oncemq.handler.binding import BoundHandler
from oncemq.message.envelope import Delivery
from oncemq.message.reader import Reader
from oncemq.observe.logs import now_handling
from oncemq.retry.classify import Fault

Step = Callable[[], None]
Trouble = InfrastructureError | StrategyBug
Told = Callable[[int, float, Trouble], None]
"""Called with (tries, pause in seconds, error) before a step is repeated."""

_LONGEST_WAIT = 5.0


class Finisher:
    """Records, saves and confirms one item of a direct unit.

    External effects of the handler cannot be rolled back, and running it again would repeat them. So when one of
    these steps fails, that step alone is repeated, until it succeeds or the process ends.

    Args:
        chain: the strategies' hooks.
        failed: called with errors in `committed`, which change nothing.
        troubled: called before a step is repeated.
        give_up: whether to stop retrying, since the process is ending.
        sleep: waits seconds between attempts.
        send: publishes the handler's messages, with confirmation.
        outbox: where a strategy stores them instead; None without a database.
    """

    def __init__(
        self,
        chain: Chain,
        failed: Callable[[str, BaseException], None],
        troubled: Told,
        give_up: Callable[[], bool],
        sleep: Callable[[float], object],
        send: Callable[[Run], None] = lambda _run: None,
        outbox: Outbox | None = None,
    ) -> None:
        self._chain = chain
        self._idle = not (chain.records or chain.saves or chain.confirms or chain.committeds)
        self._failed = failed
        self._troubled = troubled
        self._give_up = give_up
        self._sleep = sleep
        self._send = send
        self._outbox = outbox

    def writer(self, clock: Clock) -> OutcomeWriter:
        """Return what saves the outcomes of several items at once, in a thread."""
        return OutcomeWriter(self.save_all, self._troubled, self._give_up, self._sleep, clock.monotonic)

    def run_of(self, unit: Unit, item: Item) -> Run:
        """Return the item's own run."""
        run = Run(unit, [item])
        run.outbox = self._outbox
        return run

    def finish(self, run: Run, item: Item, *, ran: bool) -> None:
        """Execute the steps after the decision; a strategy may still change the verdict by Culprits.

        Args:
            run: the item's own run.
            item: its verdict is set.
            ran: its handler was called. If not, a failing step is not repeated: the item can start again.

        Raises:
            StrategyBug: a hook failed, and the process ends or the handler did not run.
            InfrastructureError: the same, caused by the database.
        """
        if self._idle and not run.outgoing:
            run.outgoing = None
            return
        try:
            for doing, step in self._steps(run, item):
                if ran:
                    self._insist(doing, step)
                else:
                    with_bugs(step, doing)
        except Culprits as culprits:
            item.verdict = culprits.verdicts.get(item, item.verdict)
            return
        self._tell_committed(run)

    def save_all(self, ended: Sequence[Ended]) -> list[Ended]:
        """Save the outcomes of several items; returns those that could not be saved, with their `trouble`.

        Where saving fails it is tried in ever smaller parts, so that one outcome that cannot be saved stops no other.
        """
        try:
            without_culprits(lambda: self._save_runs(ended), "save")
        except (StrategyBug, InfrastructureError) as trouble:
            away = isinstance(trouble, InfrastructureError) and fault_of(trouble) is not Fault.TRANSIENT
            if away or len(ended) == 1:
                for each in ended:
                    each.trouble = trouble
                return list(ended)
            middle = len(ended) // 2
            return [*self.save_all(ended[:middle]), *self.save_all(ended[middle:])]
        for each in ended:
            each.trouble = None
            self._tell_committed(each.run)
        return []

    def _save_runs(self, ended: Sequence[Ended]) -> None:
        runs = [each.run for each in ended]
        for save in self._chain.saves_of_all:
            save(runs)

    def prepare(self, run: Run, item: Item) -> None:
        """Execute the steps before `save` for an item whose handler was called.

        Raises:
            StrategyBug: a hook failed, and the process ends.
            InfrastructureError: the same, caused by the database.
        """
        for doing, step in self._first_steps(run, item):
            self._insist(doing, step)

    def _tell_committed(self, run: Run) -> None:
        for committed in self._chain.committeds:
            try:
                committed(run)
            except Exception as error:
                self._failed("work after a commit", error)

    def _postpone(self, run: Run, item: Item, later: Sequence[Outgoing]) -> None:
        if item.verdict is PROCEED and self._outbox is not None:
            self._outbox.postpone(run.consumer, later)

    def _steps(self, run: Run, item: Item) -> Iterator[tuple[str, Step]]:
        yield from self._first_steps(run, item)
        for save in self._chain.saves:
            yield "save", lambda save=save: save(run)  # type: ignore[misc]
        for confirm in self._chain.confirms:
            yield "confirm", lambda confirm=confirm: confirm(run)  # type: ignore[misc]

    def _first_steps(self, run: Run, item: Item) -> Iterator[tuple[str, Step]]:
        if self._chain.stores_outgoing:
            run.published = run.outgoing or ()
        elif run.outgoing:
            later = [sent for sent in run.outgoing if sent.waits or sent.cancels]
            run.outgoing = [sent for sent in run.outgoing if not sent.waits and not sent.cancels]
            yield "publish", lambda: self._send(run)
            if later:
                yield "publish for later", lambda: self._postpone(run, item, later)
        run.outgoing = None
        if item.verdict is not None and item.verdict.final:
            for record in self._chain.records:
                yield "record", lambda record=record: record(run, item)  # type: ignore[misc]

    def _insist(self, doing: str, step: Step) -> None:
        try:
            with_bugs(step, doing)
        except (StrategyBug, InfrastructureError) as error:
            self._repeat(doing, step, [error])

    def _repeat(self, doing: str, step: Step, failed: list[Trouble]) -> None:
        def once() -> None:
            if failed:
                raise failed.pop()
            with_bugs(step, doing)

        retrying = Retrying(
            retry=retry_if_exception_type((InfrastructureError, StrategyBug)),
            wait=wait_random_exponential(multiplier=0.05, max=_LONGEST_WAIT),
            stop=lambda _: self._give_up(),
            before_sleep=self._before_sleep,
            sleep=self._pause,
            reraise=True,
        )
        retrying(once)

    def _pause(self, seconds: float) -> None:
        self._sleep(seconds)

    def _before_sleep(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, InfrastructureError | StrategyBug):
            self._troubled(state.attempt_number, state.upcoming_sleep, error)


def with_bugs(work: Step, doing: str) -> None:
    """Do `work`; an error of a strategy becomes a StrategyBug, unless caused by the database.

    Raises:
        StrategyBug, InfrastructureError, Culprits: raised by the hook, or derived from its error.
    """
    try:
        work()
    except (StrategyBug, InfrastructureError, Culprits):
        raise
    except Exception as error:
        raise as_engine_error(error, doing) from error


def without_culprits(work: Step, doing: str) -> None:
    """Do `work`, as `with_bugs`, where Culprits cannot be heeded.

    Raises:
        StrategyBug, InfrastructureError: raised by the hook, or derived from its error.
    """
    try:
        with_bugs(work, doing)
    except Culprits as culprits:
        raise StrategyBug(f"{doing} raised Culprits: only save and confirm of one item may") from culprits


class DirectRunner:
    """Runs the items of direct units one after the other.

    Args:
        chain: the strategies' hooks; each item is a separate run for them.
        handler: the user's function.
        reader: decodes payloads again.
        recorder: the worker's flight recorder.
        slot: read by the watchdog.
        clock: the source of time.
        failed: called with errors that change nothing.
        finisher: executes the steps after the handler.
        writer: saves how handlers ended, together with others; None = each at once.
    """

    def __init__(
        self,
        chain: Chain,
        handler: BoundHandler,
        reader: Reader,
        recorder: AnyRecorder,
        slot: TimeLimitSlot,
        clock: Clock,
        failed: Failed,
        finisher: Finisher,
        writer: OutcomeWriter | None = None,
    ) -> None:
        self._chain = chain
        self._handler = handler
        self._reader = reader
        self._recorder = recorder
        self._slot = slot
        self._clock = clock
        self._failed = failed
        self._finisher = finisher
        self._writer = writer
        self._consumer = ""
        self._asks = bool(chain.loads or chain.decides)

    def execute(self, unit: Unit) -> UnitResult:
        """Return a verdict for every delivery of `unit`; never raises an Exception."""
        result = UnitResult()
        self._consumer = unit.consumer.partition(".")[2]
        try:
            began = self._clock.monotonic()
            result.trouble = self._chain.reserve(unit)
            if self._writer is not None:
                # The time counts from the first effect: claiming for many takes no longer than for one.
                _did_not_count(unit, self._clock.monotonic() - began)
            if result.trouble is not None:
                result.verdicts = dict.fromkeys(unit.deliveries, RETURNED)
                return result
            todo, decided = open_deliveries(unit)
            result.verdicts.update(decided)
            self._run_all(unit, todo, result)
        finally:
            self._recorder.index[0] = IDLE
            self._chain.release(unit, self._failed)
        return result

    def _run_all(self, unit: Unit, todo: list[Delivery], result: UnitResult) -> None:
        self._recorder.begin([delivery.envelope for delivery in todo if delivery.envelope is not None])
        held: set[str] = set()
        outcomes = UnitOutcomes(self._writer) if self._writer is not None else None
        try:
            for position, delivery in enumerate(todo, 1):
                late = position > 1 and self._clock.monotonic() > unit.deadline
                if late or result.trouble is not None or delivery.key in held:
                    verdict = RETURNED
                else:
                    if outcomes is not None and outcomes.has_unsaved(delivery):
                        self._wait(unit, outcomes)
                    self._recorder.index[0] = position
                    verdict = self._run_one(unit, delivery, result, outcomes)
                    self._recorder.index[0] = IDLE
                result.verdicts[delivery] = verdict
                if verdict.holds_key:
                    held.add(delivery.key)
        finally:
            self._recorder.index[0] = IDLE
            if outcomes is not None:
                self._wait(unit, outcomes)
        for ended in outcomes.ended if outcomes is not None else ():
            if ended.trouble is not None:
                result.trouble = ended.trouble
                result.verdicts[ended.item.delivery] = RETURNED
            result.follow += ended.run.follow

    def _wait(self, unit: Unit, outcomes: UnitOutcomes) -> None:
        began = self._clock.monotonic()
        outcomes.wait()
        _did_not_count(unit, self._clock.monotonic() - began)

    def _run_one(
        self, unit: Unit, delivery: Delivery, result: UnitResult, outcomes: UnitOutcomes | None
    ) -> Verdict:
        item = make_item(delivery, self._reader)
        run = self._finisher.run_of(unit, item)
        try:
            if self._asks:
                before(self._chain, run, item)
            ran = not self._asks or item.verdict is PROCEED
            if ran:
                item.verdict = self._handle(run, item)
                if outcomes is not None:
                    self._finisher.prepare(run, item)
                    outcomes.add(run, item)
                    return item.verdict
            self._finisher.finish(run, item, ran=ran)
        except (StrategyBug, InfrastructureError) as trouble:
            result.trouble = trouble
            return RETURNED
        result.follow += run.follow
        return item.verdict or RETURNED

    def _handle(self, run: Run, item: Item) -> Verdict:
        slot = self._slot
        now_handling((self._consumer, item.envelope))
        slot.started = self._clock.monotonic()
        try:
            item.result = self._handler.call(run, item)
        except BaseException as error:
            return judge(error)
        finally:
            slot.started = 0.0
            now_handling(None)
        # Also when it took too long: the effect has happened and cannot be rolled back.
        return PROCEED


def _did_not_count(unit: Unit, seconds: float) -> None:
    unit.deadline += seconds
    unit.waited += seconds


def load_waits(chain: Chain, run: Run) -> bool:
    """Return whether `before` may wait for a server or the user's code.

    Raises:
        StrategyBug: a hook failed.
    """
    try:
        return any(waits(run) for waits in chain.loads_that_wait)
    except Exception as error:
        raise as_engine_error(error, "load") from error


def before(chain: Chain, run: Run, item: Item) -> None:
    """Load and decide; the verdict is in `item.verdict`.

    Raises:
        StrategyBug: a hook failed.
    """
    without_culprits(lambda: _before(chain, run, item), "load or decide")


def _before(chain: Chain, run: Run, item: Item) -> None:
    for load in chain.loads:
        load(run, run.items)
    item.verdict = chain.decide(run, item)


def overdue() -> Verdict:
    """Return the verdict on an item whose handler was cancelled at its soft limit."""
    error = TimeLimitExceeded("the handler took longer than its soft time limit, and was cancelled")
    return retry(str(error), error=error)


async def handle_async(
    handler: BoundHandler, run: Run, item: Item, soft: float | None, on_soft: Callable[[], None]
) -> Verdict:
    """Run an async handler for one item; its soft limit (in seconds) cancels it, as asyncio does."""
    limit = asyncio.timeout(soft)
    try:
        answer: Any = handler.call(run, item)
        if inspect.isawaitable(answer):
            async with limit:
                answer = await answer
        item.result = answer
    except BaseException as error:
        if is_a(error, TimeoutError) and limit.expired():
            on_soft()
            return overdue()
        return judge(error)
    return PROCEED
