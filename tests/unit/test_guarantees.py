"""docs/guarantees.md names files, tests and defects that are there."""

import ast
import re
from pathlib import Path

from defects.catalog import DEFECTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
CATALOG = {defect.name: defect for defect in DEFECTS}
SECTIONS = PAGE.split("\n## ")[1:]


def _defined(path: Path) -> set[str]:
    """Return the names of a file's test functions and classes, inherited ones not included."""
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }


def test_every_named_file_is_there() -> None:
    """A file that moves takes its place on the page along."""
    named = re.findall(r"`((?:framework|adapters|strategies|tests)/[^`:]+\.py)", PAGE)
    assert named
    assert sorted({path for path in named if not (ROOT / path).is_file()}) == []


def test_every_named_test_is_there() -> None:
    """A test that is renamed, or goes, is noticed; those of a shipped suite are looked for in the suite."""
    suites = set().union(*(_defined(path) for path in (ROOT / "framework/oncemq/testing").rglob("*.py")))
    missing = []
    for path, names in re.findall(r"`(tests/[^`:]+\.py)::([^`\[]+)", PAGE):
        known = _defined(ROOT / path) | suites
        missing += [f"{path}::{names}" for name in names.split("::") if name not in known]
    assert missing == []


def test_every_named_defect_says_the_same_as_the_catalog() -> None:
    """Its tests are those that the catalog names, and its files are among those of its section."""
    rows = re.findall(r"\| defect `([^`]+)` \| (.*) \|", PAGE)
    assert rows
    assert {name for name, _ in rows} - set(CATALOG) == set()
    assert [
        name for name, tests in rows if re.findall(r"`([^`]+)`", tests) != list(CATALOG[name].tests)
    ] == []
    for section in SECTIONS:
        named = set(re.findall(r"`((?:framework|adapters|strategies)/[^`]+)`", section))
        edited = {
            edit.file for name in re.findall(r"defect `([^`]+)`", section) for edit in CATALOG[name].edits
        }
        assert edited <= named, section.partition("\n")[0]


def test_every_promise_has_a_guard() -> None:
    """Each section says where it is enforced, and names a defect."""
    assert len(SECTIONS) >= 23
    assert [
        section.partition("\n")[0]
        for section in SECTIONS
        if "\nEnforced in `" not in section or "| defect `" not in section
    ] == []
