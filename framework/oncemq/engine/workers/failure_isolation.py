"""Failure isolation: how a unit with a failing item still commits its healthy ones, without charging others.

run, or parts of it with savepoints     item at fault known   → run again without it
 └ unknown → run with flush per item    item at fault known   → run again without it
    └ still unknown → halves, then solo : an item that fails alone is at fault
the database fails → the same run again, after a pause; if it persists, the unit is returned
it fails by one item's work → run again without it, then that item alone, which shows the cause
a lock stays held → halves, then solo, without waiting for locks : an item that needs the lock is deferred
"""

import random
from collections import Counter
from collections.abc import Callable, Collection, Container
from dataclasses import dataclass, field
from datetime import timedelta

from oncemq.contracts.unit import Unit
from oncemq.contracts.verdict import RETURNED, Culprits, Verdict, before_a_try, defer, retry
from oncemq.engine.base.error_verdicts import UnknownCulprit, cause_of, judge
from oncemq.engine.base.hook_points import nothing
from oncemq.engine.base.items import may_run
from oncemq.engine.base.strategy_chain import Chain, Failed
from oncemq.engine.consumer.contention import Contention
from oncemq.engine.transaction import error_attribution as whose
from oncemq.engine.transaction.error_attribution import Suspicion
from oncemq.engine.transaction.retrier import LONGEST_TRYING, TransactionRetrier
from oncemq.engine.transaction.savepoint_batches import (
    TransactionResult,
    first_of_each_key,
    unproved,
    writers,
)
from oncemq.engine.transaction.transaction_guard import HiddenCommit, NeedsIsolation
from oncemq.engine.transaction.unit_transaction import RunMode, UnitTransaction
from oncemq.errors import InfrastructureError, StrategyBug
from oncemq.message.envelope import Delivery
from oncemq.observe.events import RescueStep
from oncemq.retry.classify import (
    Fault,
    classify,
    is_contention,
    is_lock_timeout,
    is_stale,
    is_unique_violation,
    is_whole_database_locked,
)

_THIRD_COUNTS = 3
_COUNTS_AFTER = 30.0
"""Seconds for which a message must have failed on a lock without waiting, before that counts."""
_LONGEST_DEFER = 30.0
_STALE_LOOKS = 3
"""How often an item runs again in the same unit because its row was changed concurrently, before that counts."""
_COMMON_FAILURES = 2
"""Messages that fail alone in a row; beyond this number the cause is not a single message."""


@dataclass(slots=True)
class UnitResult:
    """The outcome of a unit.

    Args:
        verdicts: one per delivery.
        follow: deliveries to run next, in order.
        trouble: why the consumer must pause; None = continue.
        steps: the isolation steps that were needed.
        committed: the number of committed transactions.
    """

    verdicts: dict[Delivery, Verdict] = field(default_factory=dict)
    follow: list[Delivery] = field(default_factory=list)
    trouble: InfrastructureError | StrategyBug | None = None
    steps: Counter[RescueStep] = field(default_factory=Counter)
    committed: int = 0


class UnitRunner:
    """Runs transactional units of one worker, with the hooks around their transactions.

    Args:
        chain: the strategies' hooks.
        attempt: runs deliveries in one transaction.
        lane: shared with the consumer's other workers.
        tries: repeats a run while the database fails temporarily.
        failed: called with errors in `release`, which change nothing.
        point: called with each kill point reached.
    """

    def __init__(
        self,
        chain: Chain,
        attempt: UnitTransaction,
        lane: Contention,
        tries: TransactionRetrier,
        failed: Failed,
        point: Callable[[str], None] = nothing,
    ) -> None:
        self._chain = chain
        self._attempt = attempt
        self._lane = lane
        self._tries = tries
        self._failed = failed
        self._point = point

    def execute(self, unit: Unit) -> UnitResult:
        """Return a verdict for every delivery of `unit`; never raises an Exception."""
        try:
            trouble = self._chain.reserve(unit)
            if trouble is not None:
                return UnitResult(dict.fromkeys(unit.deliveries, RETURNED), trouble=trouble)
            self._point("reserved")
            todo, decided = open_deliveries(unit)
            second_look = self._chain.second_look
            result = _Execution(
                self._attempt, self._lane, self._tries, unit, todo, second_look=second_look
            ).finish()
            result.verdicts.update(decided)
            return result
        finally:
            self._chain.release(unit, self._failed)


def open_deliveries(unit: Unit) -> tuple[list[Delivery], dict[Delivery, Verdict]]:
    """Return deliveries that may run, and the verdicts on those decided by `reserve` and on those behind them."""
    if not unit.verdicts:
        return list(unit.deliveries), {}
    todo, left_out = may_run(unit.deliveries, unit.verdicts)
    return todo, {delivery: before_a_try(verdict) for delivery, verdict in left_out.items()}


class _Execution:
    """One unit during failure isolation."""

    def __init__(
        self,
        attempt: UnitTransaction,
        lane: Contention,
        tries: TransactionRetrier,
        unit: Unit,
        todo: list[Delivery],
        *,
        second_look: bool,
    ) -> None:
        self._attempt = attempt
        self._lane = lane
        self._tries = tries
        self._second_look = second_look
        self._unit = unit
        self._todo = todo
        self._size = len(todo)
        self._careful = False
        self._lonely_failures = 0
        self._hurried = lane.lock_nowait
        self._isolated: set[Delivery] = set()
        self._looks: Counter[Delivery] = Counter()
        self._aside: list[Delivery] = []
        self._cut: Delivery | None = None
        self.result = UnitResult()
        unit.decided = self.result.verdicts

    def finish(self) -> UnitResult:
        while self._todo or self._aside:
            if not self._todo:
                self._todo.append(self._aside.pop(0))
            (part, isolated), began = self._next(), self._lane.now()
            if not part:
                self._return_all()
                continue
            mode = RunMode(self._careful, self._hurried, isolated)
            # The holder of a lock may be in an exclusive unit itself.
            exclusive = self._lane.exclusive and not self._hurried
            look = not self._hurried and self._lane.must_look()
            try:
                done = self._attempt.run(self._unit, part, mode, exclusive=exclusive, look=look)
            except Exception as error:
                self._failed(error, part, mode, began)
            else:
                self._lane.ran(self._lane.now() - began)
                if done.others_exclusive:
                    self._tries.joined_others()
                if self._lane.succeeded():
                    self._tries.concurrent_again()
                self._accept(done, part)
        return self.result

    def _failed(self, error: Exception, part: list[Delivery], mode: RunMode, began: float) -> None:
        """Repeat a run if that can help, else choose what runs next."""
        if isinstance(error, InfrastructureError):
            try:
                done = self._tries.again(error, self._lane.now() - began, self._unit, part, mode)
            except Exception as last:
                error = last
            else:
                self._accept(done, part)
                return
        if isinstance(error, NeedsIsolation):
            self._isolated.update(item.delivery for item in error.items)
        elif isinstance(error, Culprits):
            self._without(error)
        elif isinstance(error, UnknownCulprit):
            self._closer(part, error)
        elif isinstance(error, InfrastructureError):
            self._isolate(part, error, self._lane.now() - began)
        elif isinstance(error, StrategyBug):
            self._give_up(error)
        else:
            raise error

    def _next(self) -> tuple[list[Delivery], bool]:
        """Return the next deliveries, and whether they are a call alone in its transaction; none if time is up."""
        todo, alone = self._todo[: self._size], self._isolated
        if self._cut in todo[1:]:
            todo = todo[: todo.index(self._cut)]
        if self._attempt.isolation.at_once:
            if self.result.committed and self._lane.now() > self._unit.deadline:
                return [], True
            return (todo[:1] if self._attempt.one_by_one else todo), True
        if not alone:
            return todo, False
        isolated = todo[0] in alone
        end = next((at for at, delivery in enumerate(todo) if (delivery in alone) is not isolated), len(todo))
        return todo[: min(end, 1) if isolated and self._attempt.one_by_one else end], isolated

    def _accept(self, done: TransactionResult, part: list[Delivery]) -> None:
        result = self.result
        for run in done.runs:
            result.verdicts.update((item.delivery, item.verdict or RETURNED) for item in run.items)
            result.follow += run.follow
        result.verdicts.update(done.left_out)
        held = {delivery.key for delivery in part if result.verdicts[delivery].holds_key}
        if done.undone:
            result.steps[RescueStep.SAVEPOINT] += done.undone
        result.committed += 1
        self._lonely_failures = 0
        self._todo = self._todo[len(part) :]
        if held:
            self._return_keys(held)
        if any(verdict is RETURNED for verdict in map(result.verdicts.get, part)):
            # The time budget is used up: deliveries that were not started are returned, halves included.
            self._return_all()

    def _without(self, culprits: Culprits) -> None:
        """Fix the culprits' verdicts; earlier items of their keys run again, later ones wait where they must."""
        self.result.steps[RescueStep.RERUN] += 1
        charged = {item.delivery: verdict for item, verdict in culprits.verdicts.items()}
        if charged.keys().isdisjoint(self._todo):
            # Otherwise the same run would be repeated without end.
            self._give_up(StrategyBug("a strategy raised Culprits without any item of the run"))
        else:
            self._charge(charged, writers(culprits.verdicts))

    def _charge(self, charged: dict[Delivery, Verdict], wrote: Container[Delivery] = ()) -> None:
        charged = first_of_each_key(self._todo, charged)
        if self._attempt.keys_matter and self._cuts_before(charged, wrote):
            return
        charged = {
            failed: verdict for failed, verdict in charged.items() if not self._look_again(failed, verdict)
        }
        self._todo = self._ready(self._todo, charged)
        self.result.verdicts.update(charged)

    def _cuts_before(self, charged: dict[Delivery, Verdict], wrote: Container[Delivery]) -> bool:
        """Whether items before a charged message are saved first: it ran on data that they have not reached yet."""
        at = unproved(self._todo, charged, wrote)
        if at is None or _is_saved(charged[self._todo[at]]):
            return False
        self._cut = self._todo[at]
        return True

    def _look_again(self, delivery: Delivery, verdict: Verdict) -> bool:
        """Whether the item met a conflicting row: the next run decides with that row visible."""
        error = verdict.error
        if error is None:
            return False
        looks = _STALE_LOOKS if is_stale(error) else self._second_look and is_unique_violation(error)
        if self._looks[delivery] >= looks:
            return False
        self._looks[delivery] += 1
        return True

    def _closer(self, part: list[Delivery], error: UnknownCulprit) -> None:
        if len(part) == 1:
            self._charge({part[0]: judge(error.__cause__ or error)})
        elif not self._careful:
            self._careful = True
            self.result.steps[RescueStep.CAREFUL] += 1
        else:
            self._halve(part)

    def _halve(self, part: list[Delivery]) -> None:
        self._size = len(part) // 2
        self.result.steps[RescueStep.SOLO if self._size == 1 else RescueStep.HALVE] += 1

    def _isolate(self, part: list[Delivery], error: InfrastructureError, seconds: float) -> None:
        """Find the cause of a persistent database failure; see `oncemq.engine.transaction.error_attribution`."""
        cause = cause_of(error)
        fault = classify(cause)
        if fault is Fault.TRANSIENT:
            self._wait_aside(part, error, seconds)
        elif not self._attempt.database_answers():
            self._give_up(error)
        elif len(part) == 1:
            self._try_alone(part[0], error)
        elif isinstance(error, Suspicion) and error.item.delivery in part:
            self._set_aside(error.item.delivery)
        elif not self._careful and fault is not Fault.OFFLINE:
            self._careful = True
            self.result.steps[RescueStep.CAREFUL] += 1
        else:
            self._halve(part)

    def _wait_aside(self, part: list[Delivery], error: InfrastructureError, seconds: float) -> None:
        """Defer a message that meets a held lock, and let the others continue (rule 7: its third failure counts)."""
        cause = cause_of(error)
        locked = is_lock_timeout(cause)
        if locked and seconds >= LONGEST_TRYING and not self._hurried:
            self._hurried = True
            self._tries.waited_without_success(error)
        lonely = self._lonely_failures < _COMMON_FAILURES or (locked and self._hurried)
        if is_whole_database_locked(cause) or not lonely:
            self._give_up(error)
        elif len(part) > 1:
            self._halve(part)
        else:
            self._lonely_failures += 1
            self._postpone(part[0], error)

    def _set_aside(self, delivery: Delivery) -> None:
        """Run its neighbours without it first; later ones of its key wait."""
        self.result.steps[RescueStep.RERUN] += 1
        place = self._todo.index(delivery)
        later = self._ready(self._todo[place + 1 :], {}, {delivery.key})
        self._todo = self._todo[:place] + later
        self._aside.append(delivery)

    def _try_alone(self, delivery: Delivery, error: InfrastructureError) -> None:
        cause = cause_of(error)
        counts, shared = whose.counts(delivery, cause, self._lane)
        if counts:
            self._charge({delivery: judge(cause)})
            return
        self._tries.tell(delivery, error)
        self._charge({delivery: defer(self._pause(delivery), str(error))})
        if shared:
            self._give_up(error)

    def _postpone(self, delivery: Delivery, error: InfrastructureError) -> None:
        delivery.failures += 1
        if delivery.failures == 1:
            delivery.commits_at_failure, delivery.failed_since = self._lane.commits, self._lane.now()
        if self._counts(delivery, error):
            self._charge({delivery: retry(str(error), error=cause_of(error))})
        else:
            self._charge({delivery: defer(self._pause(delivery), str(error))})

    def _pause(self, delivery: Delivery) -> timedelta:
        # Without lock waits failing is cheap, but many frequent retries would delay the others.
        longest = min(_LONGEST_DEFER, 2 ** (delivery.failures + (2 if self._hurried else 0)))
        return timedelta(seconds=random.uniform(0.5, 1.0) * longest)  # noqa: S311 - jitter

    def _counts(self, delivery: Delivery, error: InfrastructureError) -> bool:
        if delivery.failures < _THIRD_COUNTS:
            return False
        cause = cause_of(error)
        if is_contention(cause) and not is_lock_timeout(cause):
            return True  # alone in its unit, and not waiting for a lock: it is not contention
        if self._lane.commits <= delivery.commits_at_failure:
            return False
        return not self._hurried or self._lane.now() - delivery.failed_since >= _COUNTS_AFTER

    def _give_up(self, error: InfrastructureError | StrategyBug) -> None:
        self.result.trouble = error
        self._todo += self._aside
        self._aside = []
        self._return_all()

    def _return_all(self) -> None:
        self.result.verdicts.update(dict.fromkeys(self._todo, RETURNED))
        self._todo = []

    def _return_keys(self, keys: set[str]) -> None:
        self._todo = self._ready(self._todo, {}, keys)
        self._aside = self._ready(self._aside, {}, keys)

    def _ready(
        self, deliveries: list[Delivery], verdicts: dict[Delivery, Verdict], held: Collection[str] = ()
    ) -> list[Delivery]:
        """Return the deliveries that may run; the verdicts of the others are kept."""
        ready, left_out = may_run(deliveries, verdicts, held)
        self.result.verdicts.update(left_out)
        return ready


def _is_saved(verdict: Verdict) -> bool:
    """Return whether the message must not run again, as its handler has committed its work."""
    return isinstance(verdict.error, HiddenCommit)
