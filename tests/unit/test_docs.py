"""The documentation says what the code says."""

import inspect
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]
ARCHITECTURE = (HOUSE / "docs" / "architecture.md").read_text()
SOURCES = (HOUSE, HOUSE / "framework/oncemq", HOUSE / "adapters", HOUSE / "strategies")
STRATEGIES = sorted(point.name for point in entry_points(group="oncemq.strategies"))


def _documented(name: str) -> str:
    (point,) = entry_points(group="oncemq.strategies", name=name)
    return inspect.getdoc(point.load()) or ""


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_option_of_a_strategy_is_documented(name: str) -> None:
    """Its section in docs/strategies.md is its docstring; anyone who changes one changes both."""
    _, _, section = (HOUSE / "docs" / "strategies.md").read_text().partition(f"\n## `{name}`\n\n")
    assert section.partition("\n\n## ")[0].strip() == _documented(name)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_is_in_the_readme(name: str) -> None:
    """A newcomer sees all of them in one table."""
    assert f"\n| `{name}` |" in (HOUSE / "README.md").read_text()


def test_every_place_on_the_architecture_page_is_there() -> None:
    """A file or folder that moves takes its place on the page along."""
    named = {name for name in re.findall(r"`([a-z_*/]+(?:\.py|/))`", ARCHITECTURE) if "/" in name}
    assert len(named) > 50
    assert (
        sorted(name for name in named if not any(any(root.glob(name.rstrip("/"))) for root in SOURCES)) == []
    )


MOST_FRAMES = 12
MOST_FILES = 25


def test_the_way_of_a_message_is_short_and_on_the_architecture_page() -> None:
    """The frames and files that the page lists are those that a message passes, and they are few."""
    # In a process of its own: which observers there are depends on the logging that is configured in a process.
    walk = subprocess.run(
        [sys.executable, "-m", "benchmarks.walk"], cwd=HOUSE, capture_output=True, text=True, check=True
    )
    way = [[line.strip() for line in block.split("\n")[1:]] for block in walk.stdout.split("\n\n")]
    page = [block.split("\n") for block in re.findall(r"```\n(.*?)\n```", ARCHITECTURE, re.DOTALL)]
    frames, files = ([line.strip() for line in lines] for lines in page)
    assert frames == way[0]
    assert sorted(files) == sorted(way[2])
    assert len(frames) <= MOST_FRAMES
    assert len([file for file in files if file.startswith("oncemq/engine/")]) <= MOST_FILES


def test_every_package_of_the_engine_is_on_the_architecture_page() -> None:
    """A reader finds each folder of the engine by name."""
    folders = {path.parent.name for path in (HOUSE / "framework/oncemq/engine").glob("*/__init__.py")}
    assert sorted(name for name in folders if f"engine/{name}/" not in ARCHITECTURE) == []
