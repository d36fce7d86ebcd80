"""docs/guarantees.md names files, tests and defects that are there, and every other page has its promises in the list."""

import re
from pathlib import Path

from defects.catalog import DEFECTS
from promises import Promise, is_there, listed, pages, without, wrong

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
PEERS = (ROOT / "docs" / "peers.md").read_text()
CATALOG = {defect.name: defect for defect in DEFECTS}
SECTIONS = PAGE.split("\n## ")[1:]


def test_every_named_file_is_there() -> None:
    """A file that moves takes its place on the page along."""
    named = re.findall(r"`((?:framework|adapters|strategies|tests)/[^`:]+\.py)", PAGE)
    assert named
    assert sorted({path for path in named if not (ROOT / path).is_file()}) == []


def test_every_named_test_is_there() -> None:
    """A test that is renamed, or goes, is noticed; those of a shipped suite are looked for in the suite."""
    named = re.findall(r"`(tests/[^`:]+\.py::[^`]+)`", PAGE)
    assert named
    assert [test for test in named if not is_there(test)] == []


def test_every_test_beside_those_of_others_is_there() -> None:
    """Each row of docs/peers.md has one of ours, which exists."""
    rows = re.findall(r"^\| [^|`]+ \| [^|]+`[^|]+ \| (.+) \|$", PEERS, re.MULTILINE)
    assert len(rows) == PEERS.count("\n| ") - 1 > 30
    named = [re.findall(r"`(tests/[^`:]+\.py::[^`]+)`", row) for row in rows]
    assert all(named)
    assert [test for tests in named for test in tests if not is_there(test)] == []


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


def test_every_page_has_its_promises() -> None:
    """Each page, the help, the schema and the docstrings: what the list says stands there, and its tests are there."""
    assert list(wrong(listed(), pages())) == []
    assert all(without().values())


def test_a_page_without_promises_is_found() -> None:
    """A new page passes only with its promises, or with the reason why it makes none."""
    known = "tests/unit/test_guarantees.py"
    promises = [Promise("a.md", "runs once", (known,))]
    assert list(wrong(promises, {"a.md": "It runs\nonce."})) == []
    (found,) = wrong(promises, {"a.md": "It runs once.", "new.md": "It never stops."})
    assert found.startswith("new.md: none of its promises")


def test_a_sentence_or_a_test_that_goes_is_found() -> None:
    """Who rewords a page, or renames a test, has to look at the promise again."""
    known = "tests/unit/test_guarantees.py::test_a_sentence_or_a_test_that_goes_is_found"
    text = {"a.md": "It runs once."}
    assert list(wrong([Promise("a.md", "runs twice", (known,))], text)) == ["a.md: does not say 'runs twice'"]
    (found,) = wrong([Promise("a.md", "runs once", (f"{known}_not",))], text)
    assert found == f"a.md: {known}_not is not there"
    (found,) = wrong([Promise("a.md", "runs once", ())], text)
    assert found == "a.md: no test names 'runs once'"
