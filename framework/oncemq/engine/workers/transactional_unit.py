"""Runs transactional units for one worker: reserve, failure isolation, release."""

from collections.abc import Callable

from oncemq.contracts.unit import Unit
from oncemq.contracts.verdict import RETURNED, before_a_try
from oncemq.engine.base.error_verdicts import describe, is_infrastructure
from oncemq.engine.base.hook_points import nothing
from oncemq.engine.base.strategy_chain import Chain
from oncemq.engine.workers.failure_isolation import Rescue, UnitResult
from oncemq.errors import InfrastructureError, StrategyBug
from oncemq.message.envelope import Delivery

Failed = Callable[[str, BaseException], None]


class UnitRunner:
    """Runs units with the hooks around their transactions.

    Args:
        chain: the strategies' hooks.
        rescue: runs the deliveries that `reserve` left to run.
        failed: called with errors in `release`, which change nothing.
        point: called with each kill point reached.
    """

    def __init__(
        self, chain: Chain, rescue: Rescue, failed: Failed, point: Callable[[str], None] = nothing
    ) -> None:
        self._chain = chain
        self._rescue = rescue
        self._failed = failed
        self._point = point

    def execute(self, unit: Unit) -> UnitResult:
        """Return a verdict for every delivery of `unit`; never raises an Exception."""
        try:
            trouble = reserve(self._chain, unit)
            if trouble is not None:
                return UnitResult(dict.fromkeys(unit.deliveries, RETURNED), trouble=trouble)
            self._point("reserved")
            result = UnitResult()
            todo = open_deliveries(unit, result)
            ran = self._rescue.execute(unit, todo)
            ran.verdicts.update(result.verdicts)
            return ran
        finally:
            release(self._chain, unit, self._failed)


def reserve(chain: Chain, unit: Unit) -> InfrastructureError | StrategyBug | None:
    """Let every strategy reserve; returns why the unit cannot run."""
    try:
        for hook in chain.reserves:
            hook(unit)
    except Exception as error:
        if is_infrastructure(error):
            trouble: InfrastructureError | StrategyBug = InfrastructureError(describe(error))
        else:
            trouble = StrategyBug(f"reserve failed: {describe(error)}")
        trouble.__cause__ = error
        return trouble
    return None


def open_deliveries(unit: Unit, result: UnitResult) -> list[Delivery]:
    """Return deliveries that may run; those decided by `reserve`, and those behind them, get their verdicts in `result`."""
    if not unit.verdicts:
        return list(unit.deliveries)
    held: set[str] = set()
    todo = []
    for delivery in unit.deliveries:
        verdict = RETURNED if delivery.key in held else unit.verdicts.get(delivery)
        if verdict is None:
            todo.append(delivery)
            continue
        result.verdicts[delivery] = before_a_try(verdict)
        if verdict.holds_key:
            held.add(delivery.key)
    return todo


def release(chain: Chain, unit: Unit, failed: Failed) -> None:
    """Let every strategy release what it acquired, in reverse order; errors are reported and change nothing."""
    for hook in chain.releases:
        try:
            hook(unit)
        except Exception as error:
            failed("a strategy's release hook", error)
