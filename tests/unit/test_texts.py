"""Texts that a user can see are plain technical English, and docs/operations.md lists every log event."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from oncemq.observe import log_observer
from support.texts import Text, texts

WORDS = (
    r"\bmend(s|ed)?\b",
    r"\btype `",
    r"\bwith blanks\b",
    r"[…'\"`] is no (?!longer|more|known)\w",
    r"\b(who(?:ever)|(?:no|some|every)body)\b",
    r"\ba(?:new)\b",
    r"\bin (?:vain)\b",
    r"\bstands (?:still)\b",
    r"\bfor ever\b",
    r"\brival\b",
    r"\b(delivers|delivered) (it )?again\b",
    r"\bout of sight\b",
    r"\bhas not let\b",
)
UNUSUAL = re.compile("|".join(WORDS))
PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
ENDING = " failed, nothing is lost"
SHORT = {"drained", "stopped"}
"""Events of one word, which the list of texts leaves out."""
PASSED_ON = {"… …"}
"""Other libraries' lines."""


@cache
def all_texts() -> list[Text]:
    """Return the texts; every worker imports this file, and few run its tests."""
    return list(texts())


def test_the_list_holds_every_kind() -> None:
    """Errors, problems, log events, output, verdicts and help are found where they are written."""
    kinds = {text.kind for text in all_texts()}
    assert kinds == {"error", "problem", "log", "output", "verdict", "help"}
    assert len(all_texts()) > 600


@pytest.mark.parametrize("kind", ["error", "problem", "log", "output", "verdict", "help"])
def test_texts_are_plain_english(kind: str) -> None:
    """No unusual word is left; `make texts` prints the whole list for review."""
    found = [
        _shown(text)
        for text in all_texts()
        if text.kind == kind and UNUSUAL.search(f"{text.text} {text.advice}")
    ]
    assert found == []


def _shown(text: Text) -> str:
    return f"{text.place}: {text.text} {text.advice}"


def _first_cells() -> Counter[str]:
    rows = re.findall(r"^\| `(.+?)` \|(.*)\|$", PAGE, re.MULTILINE)
    return Counter(cell if "|" in rest else f"{cell}{ENDING}" for cell, rest in rows)


def test_the_page_lists_what_is_logged() -> None:
    """Each event once, in the words of the code."""
    logged = {text.text for text in all_texts() if text.kind == "log"} | SHORT
    logged |= set(log_observer._PAUSED.values())
    listed = _first_cells()
    assert sorted(logged - PASSED_ON - set(listed)) == []
    assert sorted(set(listed) - logged) == []
    assert [event for event, times in listed.items() if times > 1] == []
