"""Errors become text, whatever their own methods and attributes do."""

from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from oncemq.common.error_text import MAX_ERROR_TEXT, NO_TEXT, clean_text, describe, text_of
from oncemq.contracts.verdict import Outcome
from oncemq.engine.base.error_verdicts import is_infrastructure, judge


class Odd(Exception):
    """Raises from whatever it is asked."""

    def __init__(self, how: type[BaseException] = ValueError) -> None:
        super().__init__()
        self._how = how

    def __str__(self) -> str:
        raise self._how

    def __repr__(self) -> str:
        raise self._how

    @property
    def orig(self) -> Any:
        """Raise."""
        raise self._how

    @property
    def sqlstate(self) -> Any:
        """Raise."""
        raise self._how

    @property
    def __class__(self) -> Any:
        raise self._how

    @property
    def __cause__(self) -> Any:
        raise self._how


class Lying(str):
    """A text that is none when it is used."""

    __slots__ = ()

    def encode(self, *_: Any) -> bytes:
        """Raise."""
        raise ValueError

    def __getitem__(self, _: Any) -> str:
        raise ValueError

    def isprintable(self) -> bool:
        """Lie."""
        return True


class Answering(Exception):
    """Has a text of its own kind."""

    def __init__(self, text: Any) -> None:
        super().__init__()
        self._text = text

    def __str__(self) -> str:
        return self._text  # type: ignore[no-any-return]


@pytest.mark.parametrize("how", [ValueError, SystemExit, KeyboardInterrupt, RecursionError, MemoryError])
def test_an_error_that_raises_from_its_methods_is_described(how: type[BaseException]) -> None:
    """Whatever it raises, its class is known."""
    assert describe(Odd(how)) == f"Odd: {NO_TEXT}"


@pytest.mark.parametrize("how", [ValueError, SystemExit, KeyboardInterrupt])
def test_an_error_that_raises_from_its_methods_is_its_messages(how: type[BaseException]) -> None:
    """It costs an attempt, as any other error of a handler."""
    verdict = judge(Odd(how))
    assert verdict.outcome is Outcome.RETRY
    assert not is_infrastructure(Odd(how))


@pytest.mark.parametrize("text", [None, 3, b"bytes"])
def test_a_text_that_is_none_is_said(text: Any) -> None:
    """`__str__` may return anything, which str() refuses."""
    assert text_of(Answering(text)) == NO_TEXT


def test_a_text_of_a_subclass_becomes_an_exact_str() -> None:
    """Its methods are foreign code, too."""
    text = text_of(Answering(Lying("said\0")))
    assert (text, type(text)) == ("said\\x00", str)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("odd \udcff name", "odd \\udcff name"),
        ("NUL\0", "NUL\\x00"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x01\x02", "\\x01\\x02"),
        ("c1 \x9b", "c1 \\x9b"),
        ("line\u2028", "line\\u2028"),
        ("two\nlines\tand é 🎲", "two\nlines\tand é 🎲"),
    ],
)
def test_what_no_place_can_keep_is_escaped(text: str, clean: str) -> None:
    """Headers, tables and terminals get text that all of them keep."""
    assert clean_text(text) == clean
    clean_text(text).encode()


def test_a_text_of_any_size_is_cut() -> None:
    """Escapes count, too."""
    assert len(clean_text("\0" * 1000, 100)) == 100
    assert len(describe(ValueError("\udcff" * 100_000))) == MAX_ERROR_TEXT


def test_the_drivers_words_are_taken_if_it_has_any() -> None:
    """An `orig` that is no exception is not believed."""
    error = DBAPIError("SELECT 1", {}, ValueError("driver"))
    assert describe(error) == "DBAPIError: driver"
    error.orig = Odd()
    assert describe(error) == f"DBAPIError: {NO_TEXT}"
    error.orig = "text"  # type: ignore[assignment]
    assert describe(error).startswith("DBAPIError: (builtins.str)") or "SELECT 1" in describe(error)
