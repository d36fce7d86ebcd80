"""Lists translated pages that are older than their sources: `python tests/translations.py`, with `--write` after translating.

A translation begins with a comment that names its source and the digest that the source had when it was translated.
"""

import re
import sys
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARK = re.compile(r"\A<!-- translation of (\S+), sha256 ([0-9a-f]{12}) -->\n")


def pages(root: Path) -> list[Path]:
    """Return every translated page."""
    return sorted([*root.glob("README.*.md"), *root.glob("docs/zh/**/*.md"), *root.glob("docs/*.zh.md")])


def digest(source: Path) -> str:
    """Return what a translation notes about its source."""
    return sha256(source.read_bytes()).hexdigest()[:12]


def older(root: Path) -> list[str]:
    """Return a line for each translation whose source has changed since, or which names none."""
    found = []
    for page in pages(root):
        name = page.relative_to(root).as_posix()
        mark = MARK.match(page.read_text())
        if mark is None or not (root / mark[1]).exists():
            found.append(f"{name} names no source")
        elif digest(root / mark[1]) != mark[2]:
            found.append(f"{name} is older than {mark[1]}")
    return found


def write(root: Path) -> None:
    """Note the present sources in every translation."""
    for page in pages(root):
        text = page.read_text()
        mark = MARK.match(text)
        if mark is not None:
            now = f"<!-- translation of {mark[1]}, sha256 {digest(root / mark[1])} -->\n"
            page.write_text(now + text[mark.end() :])


if __name__ == "__main__":
    if "--write" in sys.argv:
        write(ROOT)
    sys.stdout.write("\n".join(older(ROOT) or ["every translation is as new as its source"]) + "\n")
