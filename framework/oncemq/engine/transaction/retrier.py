"""Runs a part of a unit, and repeats it in process while the database fails temporarily."""

from collections.abc import Callable, Sequence

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from oncemq.contracts.unit import Unit
from oncemq.engine.base.error_verdicts import cause_of, fault_of
from oncemq.engine.consumer.contention import Contention
from oncemq.engine.transaction.isolation import IsolationRate
from oncemq.engine.transaction.savepoint_batches import TransactionResult
from oncemq.engine.transaction.unit_transaction import UnitTransaction
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
    """Tries parts of units for one worker.

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
        self.lane = lane
        self._attempt = attempt
        self._on_infrastructure = on_infrastructure
        self._on_lane = on_lane
        self._sleep = sleep

    def database_answers(self) -> bool:
        """Return whether the database can be reached now."""
        return self._attempt.database_answers()

    @property
    def isolation(self) -> IsolationRate:
        """How often messages had to run alone."""
        return self._attempt.isolation

    @property
    def keys_matter(self) -> bool:
        """Whether a decision about a message may depend on earlier ones of its key."""
        return self._attempt.keys_matter

    @property
    def one_by_one(self) -> bool:
        """Whether the handler is called for each message."""
        return self._attempt.one_by_one

    def run(
        self,
        unit: Unit,
        part: Sequence[Delivery],
        *,
        flush_each: bool,
        lock_nowait: bool,
        isolated: bool = False,
    ) -> TransactionResult:
        """Run `part`; when hurried, it fails instead of waiting for a lock; isolated, it is one call.

        Raises:
            Culprits, UnknownCulprit, NeedsIsolation, StrategyBug: as UnitTransaction.run.
            InfrastructureError: it persists.
        """
        retrying = Retrying(
            retry=retry_if_exception_type(InfrastructureError),
            stop=_stop_nowait if lock_nowait else _stop,
            wait=wait_random_exponential(multiplier=0.01, max=_LONGEST_WAIT),
            before_sleep=self._before_sleep,
            sleep=self._sleep,
            reraise=True,
        )
        return retrying(self._once, unit, part, flush_each, lock_nowait, isolated)

    def waited_in_vain(self, error: InfrastructureError) -> None:
        """Handle a lock wait of maximum length: for a while units do not wait for locks."""
        self.lane.waited_in_vain()
        self._on_infrastructure(_TRIES, 0.0, error)

    def tell(self, delivery: Delivery, error: InfrastructureError) -> None:
        """Report that a message failed alone, although that does not count as an attempt yet."""
        alone = InfrastructureError(f"{delivery!r} failed alone: {error}")
        alone.__cause__ = error.__cause__
        self._on_infrastructure(delivery.failures + 1, 0.0, alone)

    def _once(
        self, unit: Unit, part: Sequence[Delivery], flush_each: bool, lock_nowait: bool, isolated: bool
    ) -> TransactionResult:
        # The holder of the lock may be in an exclusive unit itself.
        exclusive = self.lane.exclusive and not lock_nowait
        done = self._attempt.run(
            unit, part, flush_each=flush_each, exclusive=exclusive, lock_nowait=lock_nowait, isolated=isolated
        )
        if self.lane.succeeded():
            self._on_lane(False, None)
        return done

    def _before_sleep(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if error is None:
            return
        if is_contention(cause_of(error)) and self.lane.deadlocked():
            self._on_lane(True, error)
        self._on_infrastructure(state.attempt_number, state.upcoming_sleep, error)


def _stop_nowait(state: RetryCallState) -> bool:
    error = state.outcome.exception() if state.outcome is not None else None
    return (error is not None and is_lock_timeout(cause_of(error))) or _stop(state)


def _stop(state: RetryCallState) -> bool:
    error = state.outcome.exception() if state.outcome is not None else None
    tries = _TRIES if error is None else _TRIES_OF.get(fault_of(error), _TRIES_OFFLINE)
    return (stop_after_attempt(tries) | stop_after_delay(LONGEST_TRYING))(state)
