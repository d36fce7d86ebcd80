"""Which state may follow which."""

import pytest

from oncemq_strategies.state_machine.transitions import OrderedStates, Rules, Step, Transitions

LINE = OrderedStates(["created", "paid", "shipped"])
TREE = Transitions(
    {"created": ["paid", "cancelled"], "paid": ["shipped"], "shipped": ["returned"]}, ["created"]
)
ENDS = Transitions(
    {"created": ["paid", "cancelled"], "paid": ["shipped"]}, ["created"], final=["cancelled", "shipped"]
)
LOOP = Transitions({"open": ["closed", "open"], "closed": ["open"]}, ["open"])


@pytest.mark.parametrize(
    ("rules", "current", "wanted", "step"),
    [
        (LINE, None, "created", Step.NEXT),
        (LINE, None, "paid", Step.EARLY),
        (LINE, "created", "paid", Step.NEXT),
        (LINE, "created", "shipped", Step.EARLY),
        (LINE, "paid", "paid", Step.SAME),
        (LINE, "shipped", "created", Step.LATE),
        (TREE, None, "created", Step.NEXT),
        (TREE, None, "shipped", Step.EARLY),
        (TREE, "created", "cancelled", Step.NEXT),
        (TREE, "created", "returned", Step.EARLY),
        (TREE, "shipped", "paid", Step.LATE),
        (TREE, "paid", "paid", Step.SAME),
        (TREE, "cancelled", "paid", Step.IMPOSSIBLE),
        (TREE, "shipped", "cancelled", Step.IMPOSSIBLE),
        (ENDS, "cancelled", "paid", Step.ENDED),
        (ENDS, "cancelled", "created", Step.ENDED),
        (ENDS, "cancelled", "cancelled", Step.SAME),
        (ENDS, "shipped", "cancelled", Step.ENDED),
        (ENDS, "paid", "cancelled", Step.IMPOSSIBLE),
        (LOOP, "open", "open", Step.NEXT),
        (LOOP, "closed", "closed", Step.SAME),
        (LOOP, "closed", "open", Step.NEXT),
    ],
)
def test_steps(rules: Rules, current: str | None, wanted: str, step: Step) -> None:
    """Next, same, late, early, after the end, or impossible."""
    assert rules.step(current, wanted) is step


def test_unknown_states_are_named() -> None:
    """The message's and the entity's, each with a suggestion."""
    with pytest.raises(LookupError, match="unknown state 'piad'; did you mean 'paid'"):
        LINE.step("created", "piad")
    with pytest.raises(LookupError, match="is in state 'draft', which this consumer does not list"):
        TREE.step("draft", "paid")
