"""Links of the README lead somewhere, in a checkout and on the package index."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RELATIVE = re.compile(r"\]\((?![a-z]+:|#)([^)]+)\)")


def _anchors(path: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_link_of_the_documentation_is_there() -> None:
    """Files and headings that are linked exist."""
    missing = []
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        for link in RELATIVE.findall(page.read_text()):
            path, _, anchor = link.partition("#")
            target = page.parent / path
            if not target.exists() or (anchor and anchor not in _anchors(target)):
                missing.append(f"{page.name}: {link}")
    assert missing == []


def test_links_on_the_package_index_are_whole() -> None:
    """What the build makes of the README has no relative link, which would lead nowhere there."""
    shown = README
    for rule in PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        shown = re.sub(rule["pattern"], rule["replacement"], shown)
    assert RELATIVE.findall(README)
    assert RELATIVE.findall(shown) == []
    assert "message.svg" not in shown
    assert "docs/strategies.md" in shown
