"""Which hooks of which strategies are called, and in which order."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from oncemq.contracts.strategy import Strategy, Traits
from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import (
    DUPLICATE,
    PARKED,
    PROCEED,
    Outcome,
    Place,
    Verdict,
    parked,
    reject,
    retry,
    stale,
    wait,
)
from oncemq.engine.base.strategy_chain import Chain
from oncemq.message import headers as names
from oncemq.message.envelope import Delivery, Message

NOW = datetime(2026, 1, 1, tzinfo=UTC)


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


class Reading(Noting):
    """Reads the user's rows between two handlers."""

    traits: ClassVar[Traits] = Traits(decides=True, reads_between=True)


class Writing(Noting):
    """Writes to the user's columns before another handler's first statement."""

    def write(self, run: Run) -> None:
        """Note it."""
        self.calls.append(f"{self.name} write")


class Counting(Noting):
    """Gives each message a place."""

    traits: ClassVar[Traits] = Traits(decides=True, counts=True)


class Comparing(Noting):
    """Knows which places are taken."""

    traits: ClassVar[Traits] = Traits(decides=True, compares_places=True)


ANY: Any = object()
FAILED = Message(
    "t", b"", headers={names.ERROR_CLASS: "KeyError", names.ERROR_TEXT: "KeyError: 'x'"}, first_failed_at=NOW
)


def item_of(message: Message) -> Any:
    """Return an item of a message, as far as a chain looks at it."""
    item: Any = Item.__new__(Item)
    item.delivery = Delivery(message)
    return item


def test_the_first_that_does_not_proceed_wins() -> None:
    """Strategies behind one that has decided are not asked."""
    calls: list[str] = []
    chain = Chain([Noting("a", calls), Noting("b", calls, DUPLICATE), Noting("c", calls)])
    assert chain.decide(ANY, item_of(Message("t", b""))) is DUPLICATE
    assert calls == ["a decide", "b decide"]


def test_what_comes_before_its_place_waits_whatever_the_others_say() -> None:
    """A duplicate that takes a place of its own is not settled before that is the next one."""
    for strategies in ([Noting("a", [], DUPLICATE), Counting("b", [], PARKED)], [Counting("b", [], PARKED)]):
        assert Chain(strategies).decide(ANY, item_of(Message("t", b""))) is PARKED
    settled = Chain([Noting("a", [], DUPLICATE), Counting("b", [])])
    assert settled.decide(ANY, item_of(Message("t", b""))) is DUPLICATE


@pytest.mark.parametrize("verdict", [stale("late"), DUPLICATE], ids=["stale", "duplicate"])
@pytest.mark.parametrize("turned", [False, True], ids=["known-first", "known-last"])
def test_what_failed_before_is_not_settled_unless_its_copy_was(verdict: Verdict, turned: bool) -> None:
    """A message that another one has overtaken becomes a dead letter with its error; a copy stays a duplicate."""
    places = Comparing("a", [], verdict)
    for known, outcome in ((PROCEED, Outcome.REJECT), (DUPLICATE, Outcome.DUPLICATE)):
        strategies = [Noting("b", [], known), places]
        found = Chain(strategies[::-1] if turned else strategies).decide(ANY, item_of(FAILED))
        assert found.outcome is outcome
        if outcome is Outcome.REJECT:
            assert found.code == "overtaken"
            assert "KeyError: 'x'" in found.reason


def test_a_message_that_a_process_died_on_was_tried() -> None:
    """A charged crash counts like a failure; a mere redelivery does not."""
    late = Chain([Comparing("a", [], stale("late"))])
    item = item_of(Message("t", b"", redelivered=True))
    assert late.decide(ANY, item).outcome is Outcome.STALE
    item.delivery.crashes = 1
    assert late.decide(ANY, item).code == "overtaken"


@pytest.mark.parametrize("verdict", [reject("no"), retry("no"), wait(timedelta(1)), PARKED], ids=repr)
def test_a_copy_of_what_was_applied_need_not_fit_any_more(verdict: Verdict) -> None:
    """Whichever place the strategy that knows copies has in the list; what is no copy gets the other's verdict."""
    for known, outcome in ((DUPLICATE, Outcome.DUPLICATE), (PROCEED, verdict.outcome)):
        chain = Chain([Comparing("a", [], verdict), Noting("b", [], known)])
        assert chain.decide(ANY, item_of(Message("t", b""))).outcome is outcome


def test_a_copy_waits_for_its_place_and_behind_its_key_all_the_same() -> None:
    """A number must be used up in its turn, and what is held keeps its place."""
    held = parked("an earlier one failed", Place(held=True))
    for first, verdict in ((Counting("a", [], PARKED), PARKED), (Noting("a", [], held), held)):
        assert Chain([first, Noting("b", [], DUPLICATE)]).decide(ANY, item_of(Message("t", b""))) is verdict


def test_all_proceed() -> None:
    """A chain that no one stops lets the handler run."""
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


def test_what_reads_between_handlers_finds_no_half_written_columns() -> None:
    """Beside a strategy that writes between handlers, each message has a unit of its own."""
    assert Chain([Reading("a", [])]).max_batch is None
    assert Chain([Reading("a", []), Writing("b", [])]).max_batch == 1


def test_without_limits_there_are_none() -> None:
    """A chain of strategies without limits has none."""
    chain = Chain([Noting("a", [])])
    assert (chain.max_batch, chain.one_per_key) == (None, False)
