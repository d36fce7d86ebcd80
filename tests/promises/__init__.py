"""Keeps a list of what the pages, the help, the schema and the docstrings promise, with the tests that name each promise.

docs/guarantees.md has the promises of the whole project with the guards that keep them; promises.yaml has those of each page.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from click.testing import CliRunner

from oncemq.cli.main import oncemq
from oncemq.config.json_schema import app_schema

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("promises.yaml")
_SUITES = ROOT / "framework" / "oncemq" / "testing"
_NO_PAGES_OF_THEIR_OWN = ("docs/guarantees.md", "docs/zh/", "docs/rocketmq-beside-java.zh.md")
"""The page of the guards has a test of its own, and a translation promises what its source does."""


class Promise(NamedTuple):
    """One sentence that can be checked.

    Args:
        page: where it stands.
        says: its words, or the part of them that matters.
        tests: paths below tests/, with a test's name or without.
    """

    page: str
    says: str
    tests: tuple[str, ...]


@cache
def defined(path: Path) -> set[str]:
    """Return the names of a file's test functions and classes, inherited ones not included."""
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }


def is_there(test: str) -> bool:
    """Return whether a test exists; those of a shipped suite are looked for in the suite."""
    path, *names = test.partition("[")[0].split("::")
    if not (ROOT / path).is_file():
        return False
    known = defined(ROOT / path) | _of_suites() if names else set()
    return all(name in known for name in names)


def listed() -> list[Promise]:
    """Return the promises that are written down."""
    return [
        Promise(page, str(row["says"]), tuple(f"tests/{test}" for test in row["tests"]))
        for page, rows in _content().items()
        if isinstance(rows, list)
        for row in rows
    ]


def without() -> dict[str, str]:
    """Return the pages that promise nothing which a test could check, with the reason."""
    return {page: rows for page, rows in _content().items() if isinstance(rows, str)}


def pages() -> dict[str, str]:
    """Return every text that promises something, by its name, white space made single blanks but for the ends of lines."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    named = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    found = {name: text for name, text in named.items() if not name.startswith(_NO_PAGES_OF_THEIR_OWN)}
    found["oncemq --help"] = CliRunner().invoke(oncemq, ["--help"]).output
    found["oncemq schema"] = json.dumps(app_schema())
    found["docstrings"] = "\n".join(_docstrings())
    return found


def wrong(promises: Sequence[Promise], texts: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the list: pages without promises, promises that no page makes, tests that are not there."""
    for page in sorted(set(texts) - {promise.page for promise in promises} - set(without())):
        yield f"{page}: none of its promises is in {LIST.name}"
    for page, says, tests in promises:
        if page not in texts:
            yield f"{page}: there is no such page"
        elif _single(says) not in _single(texts[page]):
            yield f"{page}: does not say {says!r}"
        for test in tests:
            if not is_there(test):
                yield f"{page}: {test} is not there"
        if not tests:
            yield f"{page}: no test names {says!r}"


def silent_sections(page: str, text: str, promises: Sequence[Promise]) -> list[str]:
    """Return the sections of a page of which no promise is written down."""
    made = [_single(promise.says) for promise in promises if promise.page == page]
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return [part.partition("\n")[0] for part in parts if not any(says in _single(part) for says in made)]


def _single(text: str) -> str:
    return " ".join(text.split())


def _content() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(LIST.read_text())
    return content


def _docstrings() -> Iterator[str]:
    """Yield the docstrings of what docs/reference.md shows."""
    named = re.findall(r"^::: (oncemq[\w.]*)", (ROOT / "docs" / "reference.md").read_text(), re.MULTILINE)
    for path in sorted({_module(name) for name in named}):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield ast.get_docstring(node) or ""


def _module(name: str) -> Path:
    """Return the file of a module, or of the module in which a class or function is."""
    root = {"oncemq_adapters": "adapters", "oncemq_strategies": "strategies"}.get(
        name.partition(".")[0], "framework"
    )
    path = ROOT / root / Path(*name.split("."))
    while not path.with_suffix(".py").is_file() and not (path / "__init__.py").is_file():
        path = path.parent
    return path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"


@cache
def _of_suites() -> set[str]:
    return set().union(*(defined(path) for path in _SUITES.rglob("*.py")))
