"""Describes any exception as text: contains broken `__str__` methods and unprintable characters.

An exception comes from a handler, a driver or a library: its methods and attributes are foreign code that may raise
or lie, and its text may hold characters that headers, tables and log lines cannot store. Everything that turns an
error into text uses this module.
"""

from typing import Any, TypeGuard, TypeVar

T = TypeVar("T", bound=BaseException)

MAX_ERROR_TEXT = 2000
"""Characters of an error's text that are sent with a message; brokers limit the size of headers."""

MAX_READ = 20_000
"""Characters of an exception's text that are examined."""

NO_TEXT = "<its text cannot be made>"

_ESCAPED = {
    **{code: f"\\x{code:02x}" for code in (*range(32), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"},
    # Line separators would forge a new line where the text is printed.
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


def clean_text(text: str, limit: int = MAX_READ) -> str:
    r"""Return `text` in a form that every header, table and terminal can store, of `limit` characters at most.

    Control characters and lone surrogates become escapes such as `\x00`; line ends and tabs are kept. The result is an
    exact `str`, also when `text` is of a subclass that overrides methods.
    """
    plain = str.encode(str.__getitem__(text, slice(limit)), "utf-8", "backslashreplace").decode()
    return plain if plain.isprintable() else plain.translate(_ESCAPED)[:limit]


def is_a(error: BaseException | None, kind: type[T]) -> TypeGuard[T]:
    """Return whether an error is of a class; unlike `isinstance` it runs no code of the error, which may raise."""
    return issubclass(type(error), kind)


def attribute(thing: object, name: str) -> Any:
    """Return an attribute of a foreign object; None if it is missing or reading it fails."""
    try:
        return getattr(thing, name, None)
    except BaseException:  # a property may raise anything, GeneratorExit and SystemExit included
        return None


def text_of(error: BaseException, limit: int = MAX_READ) -> str:
    """Return the clean text of an error, without its class; empty if it has none; never raises."""
    try:
        return clean_text(str(error), limit)
    except BaseException:  # an exception's own __str__ may raise anything
        return NO_TEXT


def name_of(error: BaseException) -> str:
    """Return the name of an error's class; never raises."""
    try:
        return clean_text(type(error).__name__, 200)
    except BaseException:  # a metaclass may override it
        return "Exception"


def describe(error: BaseException, limit: int = MAX_ERROR_TEXT) -> str:
    """Return class and text of an error; never raises.

    The driver's text (SQLAlchemy's `orig`) says more than the wrapper's, which repeats the statement.
    """
    original = None if attribute(error, "speaks_for_itself") else attribute(error, "orig")
    text = text_of(original if issubclass(type(original), BaseException) else error, limit)  # type: ignore[arg-type]
    return f"{name_of(error)}: {text}"[:limit] if text else name_of(error)
