"""The rescue ladder: how a unit with a failing item still commits its healthy ones, and nobody else is charged.

run, or parts of it with savepoints     culprit known   → run again without it
 └ culprit unknown → careful run        culprit known   → run again without it
    └ still unknown → halves, then solo : what fails alone is the culprit
the database fails → the same run again, after a pause; when it lasts, the unit is given back
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from oncemq.errors import InfrastructureError, StrategyBug
from oncemq.message.envelope import Delivery
from oncemq.observe.events import RescueStep
from oncemq.retry.classify import Fault, classify, is_unique_violation
from oncemq.run.attempt import Attempt
from oncemq.run.judge import UnknownCulprit, judge
from oncemq.run.lane import Lane
from oncemq.run.parts import Done
from oncemq.unit import Unit
from oncemq.verdict import RETURNED, Culprits, Verdict, defer, retry

_TRIES = 5
_TRIES_OFFLINE = 2
_LONGEST_WAIT = 1.0
_LONGEST_TRYING = 5.0
"""Seconds; a lock time-out takes longer than that, and the next step is to find out whose it is."""
_THIRD_COUNTS = 3


@dataclass(slots=True)
class UnitResult:
    """What became of a unit.

    Args:
        verdicts: one for every delivery.
        follow: deliveries that shall run next, in order.
        trouble: why the consumer must pause; None = go on.
        steps: which rescue steps were needed.
        committed: how many transactions were committed.
    """

    verdicts: dict[Delivery, Verdict] = field(default_factory=dict)
    follow: list[Delivery] = field(default_factory=list)
    trouble: InfrastructureError | StrategyBug | None = None
    steps: Counter[RescueStep] = field(default_factory=Counter)
    committed: int = 0


class Rescue:
    """Runs units of one worker until every delivery has a verdict.

    Args:
        attempt: tries deliveries in one transaction.
        lane: shared with the consumer's other workers.
        on_infrastructure: told (tries, pause in seconds, error) before the same run is tried again.
        on_lane: told when units become exclusive (True, error) or are free again (False, None).
        sleep: waits seconds between tries.
        second_look: an item that violated a unique constraint runs once more before it is charged.
    """

    def __init__(
        self,
        attempt: Attempt,
        lane: Lane,
        on_infrastructure: Callable[[int, float, BaseException], None],
        on_lane: Callable[[bool, BaseException | None], None],
        sleep: Callable[[float], None],
        *,
        second_look: bool = False,
    ) -> None:
        self._attempt = attempt
        self._lane = lane
        self._on_infrastructure = on_infrastructure
        self._on_lane = on_lane
        self._sleep = sleep
        self.second_look = second_look

    @property
    def commits(self) -> int:
        """How many units of this consumer have been committed, by any of its workers."""
        return self._lane.commits

    def database_answers(self) -> bool:
        """Return whether the database can be reached now."""
        return self._attempt.database_answers()

    def execute(self, unit: Unit, todo: Sequence[Delivery]) -> UnitResult:
        """Return a verdict for every delivery of `todo`; never raises an Exception."""
        return _Execution(self, unit, list(todo)).finish()

    def try_again(self, unit: Unit, part: Sequence[Delivery], *, careful: bool) -> Done:
        """Run `part`, in process again while the database fails for a moment.

        Raises:
            Culprits, UnknownCulprit, StrategyBug: as Attempt.run.
            InfrastructureError: it lasts.
        """
        retrying = Retrying(
            retry=retry_if_exception_type(InfrastructureError),
            stop=_stop,
            wait=wait_random_exponential(multiplier=0.01, max=_LONGEST_WAIT),
            before_sleep=self._before_sleep,
            sleep=self._sleep,
            reraise=True,
        )
        return retrying(self._once, unit, part, careful)

    def _once(self, unit: Unit, part: Sequence[Delivery], careful: bool) -> Done:
        done = self._attempt.run(unit, part, careful=careful, exclusive=self._lane.exclusive)
        if self._lane.succeeded():
            self._on_lane(False, None)
        return done

    def _before_sleep(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if error is None:
            return
        if fault_of(error) is Fault.TRANSIENT and self._lane.deadlocked():
            self._on_lane(True, error)
        self._on_infrastructure(state.attempt_number, state.upcoming_sleep, error)


def fault_of(error: BaseException) -> Fault:
    """Return the fault behind an InfrastructureError."""
    return classify(error.__cause__ or error)


def _stop(state: RetryCallState) -> bool:
    error = state.outcome.exception() if state.outcome is not None else None
    offline = error is not None and fault_of(error) is not Fault.TRANSIENT
    tries = stop_after_attempt(_TRIES_OFFLINE if offline else _TRIES)
    return (tries | stop_after_delay(_LONGEST_TRYING))(state)


class _Execution:
    """One unit on its way down the ladder."""

    def __init__(self, rescue: Rescue, unit: Unit, todo: list[Delivery]) -> None:
        self._rescue = rescue
        self._unit = unit
        self._todo = todo
        self._size = len(todo)
        self._careful = False
        self._lonely_failures = 0
        self._looked_again: set[Delivery] = set()
        self.result = UnitResult()

    def finish(self) -> UnitResult:
        while self._todo:
            part = self._todo[: self._size]
            try:
                done = self._rescue.try_again(self._unit, part, careful=self._careful)
            except Culprits as culprits:
                self._without(culprits)
            except UnknownCulprit as error:
                self._closer(part, error)
            except InfrastructureError as error:
                self._isolate(part, error)
            except StrategyBug as error:
                self._give_up(error)
            else:
                self._accept(done, part)
        return self.result

    def _accept(self, done: Done, part: list[Delivery]) -> None:
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
            # The time budget is spent: what was not started goes back, halves included.
            self._return_all()

    def _without(self, culprits: Culprits) -> None:
        """Fix the culprits' verdicts; earlier items of their keys run again, later ones wait where they must."""
        self.result.steps[RescueStep.RERUN] += 1
        charged = {item.delivery: verdict for item, verdict in culprits.verdicts.items()}
        if charged.keys().isdisjoint(self._todo):
            # Else the same run would be tried for ever.
            self._give_up(StrategyBug("a strategy raised Culprits without any item of the run"))
        else:
            self._charge(charged)

    def _charge(self, charged: dict[Delivery, Verdict]) -> None:
        if self._rescue.second_look:
            charged = {one: verdict for one, verdict in charged.items() if not self._look_again(one, verdict)}
        self.result.verdicts.update(charged)
        holding: set[str] = set()
        left = []
        for delivery in self._todo:
            if delivery in charged:
                if charged[delivery].holds_key:
                    holding.add(delivery.key)
            elif delivery.key in holding:
                self.result.verdicts[delivery] = RETURNED
            else:
                left.append(delivery)
        self._todo = left

    def _look_again(self, delivery: Delivery, verdict: Verdict) -> bool:
        """Whether the item met a rival's row for the first time: the next run decides with that row in sight."""
        first = delivery not in self._looked_again
        again = first and verdict.error is not None and is_unique_violation(verdict.error)
        if again:
            self._looked_again.add(delivery)
        return again

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

    def _isolate(self, part: list[Delivery], error: InfrastructureError) -> None:
        """A lasting failure of the database: everybody's, or one item's (rule 7: its third counts)."""
        away = fault_of(error) is Fault.OFFLINE and not self._rescue.database_answers()
        if away or self._lonely_failures >= 2:
            self._give_up(error)
        elif len(part) > 1:
            self._halve(part)
        else:
            self._lonely_failures += 1
            self._postpone(part[0], error)

    def _postpone(self, delivery: Delivery, error: InfrastructureError) -> None:
        delivery.failures += 1
        if delivery.failures == 1:
            delivery.commits_at_failure = self._rescue.commits
        if delivery.failures >= _THIRD_COUNTS and self._rescue.commits > delivery.commits_at_failure:
            self._charge({delivery: retry(str(error), error=error)})
        elif fault_of(error) is Fault.SETUP and len(self._todo) == 1 and not self.result.committed:
            # Nothing shows that others could do better: a person must hear of it, not only this message wait.
            self._give_up(error)
        else:
            pause = timedelta(seconds=random.uniform(0.5, 1.0) * 2**delivery.failures)  # noqa: S311 - jitter
            self._charge({delivery: defer(pause, str(error))})

    def _give_up(self, error: InfrastructureError | StrategyBug) -> None:
        self.result.trouble = error
        self._return_all()

    def _return_all(self) -> None:
        for delivery in self._todo:
            self.result.verdicts[delivery] = RETURNED
        self._todo = []

    def _return_keys(self, keys: set[str]) -> None:
        for delivery in self._todo:
            if delivery.key in keys:
                self.result.verdicts[delivery] = RETURNED
        self._todo = [delivery for delivery in self._todo if delivery.key not in keys]
