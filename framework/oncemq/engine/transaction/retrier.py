"""Repeats a part of a unit in process while the database fails temporarily."""

from collections.abc import Callable, Sequence
from functools import partial

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from oncemq.contracts.unit import Unit
from oncemq.engine.base.error_verdicts import cause_of, fault_of
from oncemq.engine.consumer.contention import Contention
from oncemq.engine.transaction.savepoint_batches import TransactionResult
from oncemq.engine.transaction.unit_transaction import RunMode, UnitTransaction
from oncemq.errors import InfrastructureError
from oncemq.message.envelope import Delivery
from oncemq.retry.classify import Fault, is_contention, is_lock_timeout

_TRIES = 5
_TRIES_OFFLINE = 2
_TRIES_OF = {Fault.TRANSIENT: _TRIES, Fault.SETUP: 1}
"""Attempts by fault; a missing object is still missing a moment later, so SETUP has one."""
_LONGEST_WAIT = 1.0
LONGEST_TRYING = 5.0
"""Seconds; a lock time-out takes longer than that, and the next step is to find its cause."""


class TransactionRetrier:
    """Repeats parts of units for one worker.

    Args:
        attempt: runs deliveries in one transaction.
        lane: shared with the consumer's other workers.
        on_infrastructure: called with (tries, pause in seconds, error) before the same run is repeated.
        on_lane: called when units become exclusive (True, error) or no longer are (False, None).
        sleep: waits seconds between tries.
    """

    def __init__(
        self,
        attempt: UnitTransaction,
        lane: Contention,
        on_infrastructure: Callable[[int, float, BaseException], None],
        on_lane: Callable[[bool, BaseException | None], None],
        sleep: Callable[[float], None],
    ) -> None:
        self._lane = lane
        self._attempt = attempt
        self._on_infrastructure = on_infrastructure
        self._on_lane = on_lane
        self._sleep = sleep

    def again(
        self,
        error: InfrastructureError,
        spent: float,
        unit: Unit,
        part: Sequence[Delivery],
        mode: RunMode,
    ) -> TransactionResult:
        """Run `part` again after its first run, if that can help.

        Args:
            error: the failure of the first run.
            spent: the seconds that it took.
            unit: the unit.
            part: its deliveries.
            mode: how they are run.

        Raises:
            Culprits, UnknownCulprit, NeedsIsolation, StrategyBug: as UnitTransaction.run.
            InfrastructureError: it persists.
        """
        failed = [error]

        def run() -> TransactionResult:
            if failed:
                raise failed.pop()
            # The holder of the lock may be in an exclusive unit itself.
            exclusive = self._lane.exclusive and not mode.lock_nowait
            done = self._attempt.run(unit, part, mode, exclusive=exclusive)
            if self._lane.succeeded():
                self.concurrent_again()
            return done

        retrying = Retrying(
            retry=retry_if_exception_type(InfrastructureError),
            stop=partial(_stops, spent, mode.lock_nowait),
            wait=wait_random_exponential(multiplier=0.01, max=_LONGEST_WAIT),
            before_sleep=partial(self._before_sleep, spent),
            sleep=self._sleep,
            reraise=True,
        )
        return retrying(run)

    def concurrent_again(self) -> None:
        """Report that units are no longer exclusive."""
        self._on_lane(False, None)

    def waited_without_success(self, error: InfrastructureError) -> None:
        """Handle a lock wait of maximum length: for a while units do not wait for locks."""
        self._lane.waited_without_success()
        self._on_infrastructure(_TRIES, 0.0, error)

    def tell(self, delivery: Delivery, error: InfrastructureError) -> None:
        """Report that a message failed alone, although that does not count as an attempt yet."""
        alone = InfrastructureError(f"{delivery!r} failed alone: {error}")
        alone.__cause__ = error.__cause__
        self._on_infrastructure(delivery.failures + 1, 0.0, alone)

    def joined_others(self) -> None:
        """Follow another process, whose units are exclusive."""
        if self._lane.joined_others():
            self._on_lane(True, None)

    def _before_sleep(self, spent: float, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if error is None:
            return
        if is_contention(cause_of(error)) and self._lane.deadlocked(spent):
            self._on_lane(True, error)
        self._on_infrastructure(state.attempt_number, state.upcoming_sleep, error)


def _stops(spent: float, lock_nowait: bool, state: RetryCallState) -> bool:
    error = state.outcome.exception() if state.outcome is not None else None
    if lock_nowait and error is not None and is_lock_timeout(cause_of(error)):
        return True
    tries = _TRIES if error is None else _TRIES_OF.get(fault_of(error), _TRIES_OFFLINE)
    return state.attempt_number >= tries or spent + (state.seconds_since_start or 0.0) >= LONGEST_TRYING
