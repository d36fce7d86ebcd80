"""Which hooks of which strategies are called, and in which order."""

from collections.abc import Sequence
from typing import Any, ClassVar

from oncemq.run.chain import Chain
from oncemq.strategy import Strategy, Traits
from oncemq.unit import Item, Run, Unit
from oncemq.verdict import DUPLICATE, PROCEED, Verdict


class Noting(Strategy):
    """Notes its calls in a list that it shares."""

    traits: ClassVar[Traits] = Traits(decides=True)

    def __init__(self, name: str, calls: list[str], verdict: Verdict = PROCEED) -> None:
        self.name = name
        self.calls = calls
        self.verdict = verdict

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Note it."""
        self.calls.append(f"{self.name} load")

    def decide(self, run: Run, item: Item) -> Verdict:
        """Note it."""
        self.calls.append(f"{self.name} decide")
        return self.verdict

    def record(self, run: Run, item: Item) -> None:
        """Note it."""
        self.calls.append(f"{self.name} record")

    def release(self, unit: Unit) -> None:
        """Note it."""
        self.calls.append(f"{self.name} release")


class Small(Strategy):
    """Handles three items at most, one of each key."""

    traits: ClassVar[Traits] = Traits(decides=False, max_batch=3, one_per_key=True)


class Smaller(Small):
    """Handles two items at most."""

    traits: ClassVar[Traits] = Traits(decides=False, max_batch=2)


ANY: Any = object()


def test_the_first_that_does_not_proceed_wins() -> None:
    """Strategies behind one that has decided are not asked."""
    calls: list[str] = []
    chain = Chain([Noting("a", calls), Noting("b", calls, DUPLICATE), Noting("c", calls)])
    assert chain.decide(ANY, ANY) is DUPLICATE
    assert calls == ["a decide", "b decide"]


def test_all_proceed() -> None:
    """A chain that nobody stops lets the handler run."""
    assert Chain([Noting("a", []), Noting("b", [])]).decide(ANY, ANY) is PROCEED


def test_every_strategy_is_told_of_a_final_item() -> None:
    """Also those that were not asked must see what the key's next item follows."""
    calls: list[str] = []
    Chain([Noting("a", calls, DUPLICATE), Noting("b", calls)]).record(ANY, ANY)
    assert calls == ["a record", "b record"]


def test_releases_run_in_reverse() -> None:
    """What was taken last is given back first."""
    calls: list[str] = []
    for release in Chain([Noting("a", calls), Noting("b", calls)]).releases:
        release(ANY)
    assert calls == ["b release", "a release"]


def test_hooks_that_are_not_overridden_are_not_called() -> None:
    """An empty hook costs nothing."""
    chain = Chain([Small()])
    hooks = (chain.reserves, chain.loads, chain.decides, chain.records, chain.saves, chain.confirms)
    assert [*hooks, chain.committeds, chain.releases] == [[]] * 8


def test_the_smallest_batch_and_any_one_per_key_hold() -> None:
    """Limits of all strategies hold together."""
    chain = Chain([Small(), Smaller(), Noting("a", [])])
    assert (chain.max_batch, chain.one_per_key) == (2, True)


def test_without_limits_there_are_none() -> None:
    """A chain of strategies without limits has none."""
    chain = Chain([Noting("a", [])])
    assert (chain.max_batch, chain.one_per_key) == (None, False)
