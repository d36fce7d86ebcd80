"""What follows a handler in a direct unit: its effect has happened, so each step is done until it has worked once."""

from collections.abc import Callable, Iterator

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from oncemq.contracts.unit import Item, Outbox, Run, Unit
from oncemq.contracts.verdict import Culprits
from oncemq.engine.base.error_verdicts import describe, is_infrastructure
from oncemq.engine.base.strategy_chain import Chain
from oncemq.errors import InfrastructureError, StrategyBug

Step = Callable[[], None]
Trouble = InfrastructureError | StrategyBug
Told = Callable[[int, float, Trouble], None]
"""Told (tries, pause in seconds, trouble) before a step is done again."""

_LONGEST_WAIT = 5.0


class Finisher:
    """Records, saves and confirms one item of a direct unit.

    What the handler did outside cannot be rolled back, and running it again would do it twice. So when one of
    these steps fails, that step alone is done again, until it works or the process leaves.

    Args:
        chain: the strategies' hooks.
        failed: told of errors in `committed`, which change nothing.
        troubled: told before a step is done again.
        give_up: whether to stop trying, since the process is leaving.
        sleep: waits seconds between tries.
        send: publishes what the handler published, with confirmation.
        outbox: where a strategy stores it instead; None without a database.
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

    def run_of(self, unit: Unit, item: Item) -> Run:
        """Return the item's own run."""
        run = Run(unit, [item])
        run.outbox = self._outbox
        return run

    def finish(self, run: Run, item: Item, *, ran: bool) -> None:
        """Do what follows the decision; a strategy may still change the verdict by Culprits.

        Args:
            run: the item's own run.
            item: its verdict stands.
            ran: its handler was called. If not, a step that fails is not insisted on: the item can start afresh.

        Raises:
            StrategyBug: a hook failed, and the process leaves or the handler did not run.
            InfrastructureError: the same, and the database is to blame.
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
        for committed in self._chain.committeds:
            try:
                committed(run)
            except Exception as error:
                self._failed("a strategy's committed hook", error)

    def _steps(self, run: Run, item: Item) -> Iterator[tuple[str, Step]]:
        if self._chain.stores_outgoing:
            run.published = run.outgoing or ()
        elif run.outgoing:
            yield "publish", lambda: self._send(run)
        run.outgoing = None
        if item.verdict is not None and item.verdict.final:
            for record in self._chain.records:
                yield "record", lambda record=record: record(run, item)  # type: ignore[misc]
        for save in self._chain.saves:
            yield "save", lambda save=save: save(run)  # type: ignore[misc]
        for confirm in self._chain.confirms:
            yield "confirm", lambda confirm=confirm: confirm(run)  # type: ignore[misc]

    def _insist(self, doing: str, step: Step) -> None:
        retrying = Retrying(
            retry=retry_if_exception_type((InfrastructureError, StrategyBug)),
            wait=wait_random_exponential(multiplier=0.05, max=_LONGEST_WAIT),
            stop=lambda _: self._give_up(),
            before_sleep=self._before_sleep,
            sleep=self._pause,
            reraise=True,
        )
        retrying(with_bugs, step, doing)

    def _pause(self, seconds: float) -> None:
        self._sleep(seconds)

    def _before_sleep(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, InfrastructureError | StrategyBug):
            self._troubled(state.attempt_number, state.upcoming_sleep, error)


def with_bugs(work: Step, doing: str) -> None:
    """Do `work`; an error of a strategy becomes a StrategyBug, unless the database is to blame.

    Raises:
        StrategyBug, InfrastructureError, Culprits: as the hook says, or as its error means.
    """
    try:
        work()
    except (StrategyBug, InfrastructureError, Culprits):
        raise
    except Exception as error:
        if is_infrastructure(error):
            raise InfrastructureError(describe(error)) from error
        raise StrategyBug(f"{doing} failed: {describe(error)}") from error
