"""What the documents say of the strategies is what their code says."""

import inspect
from importlib.metadata import entry_points
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]
STRATEGIES = sorted(point.name for point in entry_points(group="oncemq.strategies"))


def _documented(name: str) -> str:
    (point,) = entry_points(group="oncemq.strategies", name=name)
    return inspect.getdoc(point.load()) or ""


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_option_of_a_strategy_is_documented(name: str) -> None:
    """Its section in docs/strategies.md is its docstring; whoever changes one changes both."""
    _, _, section = (HOUSE / "docs" / "strategies.md").read_text().partition(f"\n## `{name}`\n\n")
    assert section.partition("\n\n## ")[0].strip() == _documented(name)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_is_in_the_readme(name: str) -> None:
    """A newcomer sees all of them in one table."""
    assert f"\n| `{name}` |" in (HOUSE / "README.md").read_text()
