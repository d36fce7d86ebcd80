"""Explains a YAML parser's error with advice, for either parser."""

from typing import Any

from oncemq.config.source.problems import Position, fail
from oncemq.errors import ConfigError

MAX_DEPTH = 32
TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels", "nothing needs that; check the brackets"
"""What is wrong, and the advice: PyYAML 6.0.4 has a limit of its own, and looks ahead so far that it finds it first."""

_PHRASES = (
    ("exceeded maximum nesting depth", *TOO_DEEP),
    (
        "mapping values are not allowed",
        "a second `: ` in one value",
        "put the value into quotes, or the key onto a line of its own",
    ),
    (
        "block mapping",
        "this line does not fit the mapping around it",
        "indent keys of one mapping equally, each with a `: ` after it; close quotes and brackets before",
    ),
    (
        "could not find expected ':'",
        "a key without `:`",
        "write `key: value`; a value that goes on in the next line is indented deeper",
    ),
    (
        "block collection",
        "this line does not fit the list around it",
        "indent the `-` of one list equally, and close quotes and brackets before",
    ),
    ("block sequence", "a list cannot begin here", "put the `-` onto a new line below its key"),
    (
        "flow sequence",
        "a list in brackets is not closed",
        "write `,` between its values and `]` after the last",
    ),
    (
        "flow mapping",
        "a mapping in braces is not closed",
        "write `,` between its entries and `}` after the last",
    ),
    (
        "quoted scalar",
        "a quoted text is not closed or holds an unknown escape",
        "close the quotes; use '…' where \\ is meant",
    ),
    (
        "alias",
        "a word that begins with `*` is an alias in YAML, and those are refused",
        "put the text into quotes",
    ),
    (
        "anchor",
        "a word that begins with `&` is an anchor in YAML, and those are refused",
        "put the text into quotes",
    ),
    ("tag", "a word that begins with `!` is a YAML tag, and tags are refused", "put the text into quotes"),
    ("directive", "a line that begins with `%` is a YAML directive, and those are refused", "remove it"),
    ("document", "the document does not end where it should", "keep one plain mapping in the file"),
    ("unexpected end of stream", "the file ends in the middle of a value", "close quotes and brackets"),
)


def explain(error: Any, text: str, file: str) -> ConfigError:
    """Return our error for the parser's `error` about `text`; quotes nothing of the text, which may be secret."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    position = Position(file, mark.line + 1, mark.column + 1) if mark else Position(file)
    letter = _letter_at(text, position)
    if letter == "\t":
        return fail(position, "a tab stands where YAML expects spaces", "indent with spaces")
    said = f"{getattr(error, 'context', None) or ''} {getattr(error, 'problem', None) or ''}"
    if "cannot start any token" in said:
        return fail(
            position,
            f"a value cannot begin with `{letter}`",
            "put the value into quotes; indent with spaces, not tabs",
        )
    for phrase, what, advice in _PHRASES:
        if phrase in said:
            return fail(position, what, advice)
    return fail(position, "this is not YAML", "check quotes, brackets and indentation around here")


def _letter_at(text: str, position: Position) -> str:
    lines = text.split("\n")
    if not 0 < position.line <= len(lines):
        return ""
    line = lines[position.line - 1]
    return line[position.column - 1] if 0 < position.column <= len(line) else ""
