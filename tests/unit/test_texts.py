"""Texts that a user can see are plain technical English."""

import re

import pytest

from support.texts import Text, texts

TEXTS = list(texts())
WORDS = (
    r"\bmend(s|ed)?\b",
    r"\btype `",
    r"\bwith blanks\b",
    r"[…'\"`] is no (?!longer|more|known)\w",
    r"\b(whoever|nobody|somebody|everybody)\b",
    r"\banew\b",
    r"\bin vain\b",
    r"\bstands still\b",
)
UNUSUAL = re.compile("|".join(WORDS))


def test_the_list_holds_every_kind() -> None:
    """Errors, problems, log events, output, verdicts and help are found where they are written."""
    kinds = {text.kind for text in TEXTS}
    assert kinds == {"error", "problem", "log", "output", "verdict", "help"}
    assert len(TEXTS) > 600


@pytest.mark.parametrize("kind", ["error", "problem", "log", "output", "verdict", "help"])
def test_texts_are_plain_english(kind: str) -> None:
    """No unusual word is left; `make texts` prints the whole list for review."""
    found = [
        _shown(text) for text in TEXTS if text.kind == kind and UNUSUAL.search(f"{text.text} {text.advice}")
    ]
    assert found == []


def _shown(text: Text) -> str:
    return f"{text.place}: {text.text} {text.advice}"
