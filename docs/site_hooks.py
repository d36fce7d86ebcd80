"""Adds pages that live outside of docs/ to the site, and leads links to them.

A link works in a checkout and on the site alike: one to a page leads to that page, one to any other file of the checkout
becomes the name of that file.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = {
    "README.md": "index.md",
    "README.zh-CN.md": "zh/index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    **{
        f"examples/{readme.parent.name}/README.md": f"examples/{readme.parent.name}.md"
        for readme in ROOT.glob("examples/*/README.md")
    },
}
"""Files of the checkout by the page that they become."""

_SOURCES = {page: source for source, page in OUTSIDE.items()}
_BROKEN_LINE = re.compile(
    r"(?<=[\u3000-\u9fff\uff00-\uffef])\n {0,3}(?=[\u3000-\u9fff\uff00-\uffef\[]|\*\*|`(?!``))"
)
"""Chinese has no blanks between words, and a line's end would become one."""

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from outside of docs/."""
    for source, page in OUTSIDE.items():
        if (ROOT / source).exists():
            files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Lead the links of a page to pages, from where it is on the site."""
    here = page.file.src_uri
    folder = posixpath.dirname(_SOURCES.get(here, f"docs/{here}"))

    def led(match: re.Match[str]) -> str:
        picture, text, target = match.groups()
        path, mark, anchor = target.partition("#")
        place = posixpath.normpath(posixpath.join(folder, path))
        goal = OUTSIDE.get(place) or OUTSIDE.get(f"{place}/README.md") or place.removeprefix("docs/")
        if files.get_file_from_path(goal) is None or goal.endswith(".py"):
            return text if text.startswith("`") else f"{text} (`{place}`)"
        return f"{picture}[{text}]({posixpath.relpath(goal, posixpath.dirname(here) or '.')}{mark}{anchor})"

    return _LINK.sub(led, _BROKEN_LINE.sub("", markdown))
