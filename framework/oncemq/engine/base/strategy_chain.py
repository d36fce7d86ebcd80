"""A consumer's strategies as bound hooks: only hooks that a strategy overrides are called."""

from collections.abc import Callable, Sequence
from typing import Any

from oncemq.contracts.strategy import Strategy
from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import PROCEED, Outcome, Verdict, before_a_try
from oncemq.engine.base.error_verdicts import as_engine_error
from oncemq.engine.base.overtaken import overtaken, was_tried
from oncemq.errors import InfrastructureError, StrategyBug

Failed = Callable[[str, BaseException], None]
"""Called with what was done, and an error that changes nothing."""

_AROUND = ("reserve", "save", "confirm", "release")
_DOES_NOT_FIT = frozenset({Outcome.REJECT, Outcome.RETRY})
_WAITS = frozenset({Outcome.WAIT, Outcome.PARKED})


class Chain:
    """The hooks of a chain, in order; `releases` in reverse.

    Attributes:
        divisible: one transaction may hold several runs. False where messages are parked: a run does not see the messages
            that an earlier one releases.
        counts: strategies that also decide about items settled by another strategy.
        copies: strategies that know whether a message with the same identity was applied before.
        one_per_key: a unit may hold at most one item of a key.
        max_batch: the most items of a unit; None = any number.
        reads_between: a strategy reads the user's rows between two handlers.
        joins: a call of a batch handler may have several messages of a key; a copy is decided after its first message.
        ends_together: claims and ends of several handlers of direct units are written together, by `reserves_of_all` and
            `saves_of_all`.
        stores_outgoing: a strategy stores the messages published by handlers of direct units.
        second_look: an item that violated a unique constraint runs once more before it counts as failed.
    """

    __slots__ = (
        "committeds",
        "confirms",
        "copies",
        "counts",
        "decides",
        "divisible",
        "ends_together",
        "joins",
        "loads",
        "loads_that_wait",
        "max_batch",
        "one_per_key",
        "reads_between",
        "records",
        "releases",
        "reserves",
        "reserves_of_all",
        "saves",
        "saves_of_all",
        "second_look",
        "stores_outgoing",
        "writes",
    )

    def __init__(self, strategies: Sequence[Strategy]) -> None:
        self.reserves: list[Callable[[Unit], None]] = _overridden(strategies, "reserve")
        self.loads: list[Callable[[Run, Sequence[Item]], None]] = _overridden(strategies, "load")
        self.decides: list[Callable[[Run, Item], Verdict]] = _overridden(strategies, "decide")
        self.records: list[Callable[[Run, Item], None]] = _overridden(strategies, "record")
        self.writes: list[Callable[[Run], None]] = _overridden(strategies, "write")
        self.saves: list[Callable[[Run], None]] = _overridden(strategies, "save")
        self.confirms: list[Callable[[Run], None]] = _overridden(strategies, "confirm")
        self.committeds: list[Callable[[Run], None]] = _overridden(strategies, "committed")
        self.releases: list[Callable[[Unit], None]] = _overridden(strategies, "release")[::-1]
        self.counts: list[Callable[[Run, Item], Verdict]] = _overridden(
            [member for member in strategies if member.traits.counts], "decide"
        )
        self.copies: list[Callable[[Run, Item], Verdict]] = _overridden(
            [member for member in strategies if member.traits.decides and not member.traits.compares_places],
            "decide",
        )
        self.second_look = any(strategy.second_look for strategy in strategies)
        self.joins = all(strategy.by_identity for strategy in strategies)
        self.saves_of_all = [member.save_all for member in strategies if _overrides(member, "save")]
        self.reserves_of_all = [member.reserve_all for member in strategies if _overrides(member, "reserve")]
        self.loads_that_wait = [member.load_waits for member in strategies if _overrides(member, "load")]
        self.ends_together = bool(self.saves_of_all) and all(
            member.ends_together for member in strategies if any(_overrides(member, hook) for hook in _AROUND)
        )
        self.stores_outgoing = any(strategy.stores_outgoing for strategy in strategies)
        self.divisible = not any(strategy.parks for strategy in strategies)
        self.one_per_key = any(strategy.traits.one_per_key for strategy in strategies)
        limits = [
            strategy.traits.max_batch for strategy in strategies if strategy.traits.max_batch is not None
        ]
        self.reads_between = any(strategy.traits.reads_between for strategy in strategies)
        if self.reads_between and self.writes:
            # What those write before another handler's first statement, a message alone in its unit does not find yet.
            limits.append(1)
        self.max_batch = min(limits, default=None)

    @property
    def has_hooks(self) -> bool:
        """Whether a strategy does more than decide: such hooks may block."""
        hooks = (self.reserves, self.loads, self.records, self.saves)
        return any((*hooks, self.confirms, self.committeds, self.releases))

    def reserve(self, unit: Unit) -> InfrastructureError | StrategyBug | None:
        """Let every strategy reserve; returns why the unit cannot run."""
        try:
            for hook in self.reserves:
                hook(unit)
        except Exception as error:
            return as_engine_error(error, "reserve")
        return None

    def reserve_all(self, units: Sequence[Unit]) -> list[InfrastructureError | StrategyBug | None]:
        """Let every strategy reserve for all units at once; returns for each why it cannot run."""
        try:
            for hook in self.reserves_of_all:
                hook(units)
        except Exception:
            return [self.reserve(unit) for unit in units]
        return [None] * len(units)

    def release(self, unit: Unit, failed: Failed) -> None:
        """Let every strategy release what it acquired, in reverse order; errors are reported and change nothing."""
        for hook in self.releases:
            try:
                hook(unit)
            except Exception as error:
                failed("a strategy's release hook", error)

    def decide(self, run: Run, item: Item) -> Verdict:
        """Ask each strategy in order; the first answer other than PROCEED wins.

        An item settled without the handler is shown to the strategies that count, since a message that is early waits;
        a message that was tried and failed is never Stale, and a Duplicate only of the same identity; an item that does not fit
        (any more) is shown to the strategies that know copies.
        """
        for decide in self.decides:
            verdict = decide(run, item)
            if verdict is not PROCEED:
                return (
                    self._settled(run, item, verdict) if verdict.final else self._stopped(run, item, verdict)
                )
        return PROCEED

    def _stopped(self, run: Run, item: Item, verdict: Verdict) -> Verdict:
        """Return the verdict for a message that a strategy does not let run: a known copy need not fit any more."""
        place = verdict.place
        waits = verdict.outcome in _WAITS and not self.counts and not (place is not None and place.held)
        if waits or verdict.outcome in _DOES_NOT_FIT:
            for decide in self.copies:
                other = decide(run, item)
                if other.outcome is Outcome.DUPLICATE:
                    return self._settled(run, item, other)
        return before_a_try(verdict)

    def _settled(self, run: Run, item: Item, verdict: Verdict) -> Verdict:
        for decide in self.counts:
            other = decide(run, item)
            if not other.final:
                return before_a_try(other)
        return self._after_failure(run, item, verdict) if was_tried(item.delivery) else verdict

    def _after_failure(self, run: Run, item: Item, verdict: Verdict) -> Verdict:
        for decide in self.copies:
            other = decide(run, item)
            if other.outcome is Outcome.DUPLICATE:
                return other
        return overtaken(item.delivery, verdict)

    def record(self, run: Run, item: Item) -> None:
        """Pass a final item to every strategy, including those not asked."""
        for record in self.records:
            record(run, item)


def _overridden(strategies: Sequence[Strategy], name: str) -> list[Any]:
    return [getattr(strategy, name) for strategy in strategies if _overrides(strategy, name)]


def _overrides(strategy: Strategy, name: str) -> bool:
    return getattr(type(strategy), name) is not getattr(Strategy, name)
