"""docs/architecture.md names files and folders that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
ROOTS = (ROOT, ROOT / "framework/oncemq", ROOT / "adapters", ROOT / "strategies")


def test_every_named_place_is_there() -> None:
    """A file or folder that moves takes its place on the page along."""
    named = {name for name in re.findall(r"`([a-z_*/]+(?:\.py|/))`", PAGE) if "/" in name}
    assert len(named) > 50
    assert sorted(name for name in named if not any(any(root.glob(name.rstrip("/"))) for root in ROOTS)) == []


def test_every_package_of_the_engine_is_on_the_page() -> None:
    """A reader finds each folder of the engine by name."""
    folders = {path.parent.name for path in (ROOT / "framework/oncemq/engine").glob("*/__init__.py")}
    assert sorted(name for name in folders if f"engine/{name}/" not in PAGE) == []
