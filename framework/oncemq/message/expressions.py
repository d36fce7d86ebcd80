"""Expressions such as `body.order_id`, `headers.tenant`, `keys[0]`, `message_id`: compiled once, called per message."""

import re
from collections.abc import Callable
from typing import Any, Final

from oncemq.message import queries
from oncemq.message.envelope import Message

Expression = Callable[[Message, Any], Any]
"""Called with the message and its decoded body; returns the value, or None if there is none."""

Step = str | int

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_-]*"
_PATH: Final = re.compile(rf"{_NAME}(?:\.{_NAME}|\[-?\d{{1,9}}\])*")
_STEP: Final = re.compile(rf"({_NAME})|\[(-?\d+)\]")


def compile_expression(text: str) -> Expression:
    """Return `text` as a function of a message and its decoded body.

    A plain path of names and positions (`body.lines[0].id`) is compiled by us; anything else is JMESPath over
    `body`, `headers`, `keys`, `message_id` and `topic`. A plain path to a header prefers the exact name, else takes
    the first that differs in case only. A value that is missing, or of another type than the expression needs,
    is None; an expression never raises because of a message.

    Raises:
        ValueError: it is not an expression, starts with a name that a message does not have, or calls an
            unknown function.
    """
    text = text.strip()
    if not _PATH.fullmatch(text):
        return queries.compile_query(text)
    steps: list[Step] = [
        match[1] if match[1] is not None else int(match[2]) for match in _STEP.finditer(text)
    ]
    root, rest = str(steps[0]), tuple(steps[1:])
    queries.require_root(root, text)
    if root == "body":
        return _body_path(rest)
    if root == "headers":
        return _header_path(rest)
    return _attribute_path(root, rest)


def is_constant(text: str) -> bool:
    """Return whether an expression has the same value for every message of a topic: the topic's name, a literal."""
    text = text.strip()
    if _PATH.fullmatch(text):
        return text == "topic"
    return queries.roots_of(text) <= {"topic"}


def split_list(text: str) -> list[str]:
    """Return the parts of `[first, second]`, or `text` alone; commas inside brackets and quotes do not split."""
    text = text.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return [text]
    parts, start, depth, quote = [], 1, 0, ""
    for position, char in enumerate(text[1:-1], 1):
        if quote:
            quote = "" if char == quote and text[position - 1] != "\\" else quote
        elif char in "'\"`":
            quote = char
        elif char in "[({":
            depth += 1
        elif char in "])}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    return [*parts, text[start:-1].strip()]


def _body_path(steps: tuple[Step, ...]) -> Expression:
    if not steps:
        return lambda _, body: body
    if len(steps) == 1 and isinstance(steps[0], str):
        return _field(steps[0])
    return lambda _, body: _walk(body, steps)


def _field(name: str) -> Expression:
    def read(_: Message, body: Any) -> Any:
        try:
            return body[name]
        except (KeyError, TypeError):
            return None

    return read


def _header_path(steps: tuple[Step, ...]) -> Expression:
    if not steps:
        return lambda message, _: dict(message.headers)
    name, rest = str(steps[0]), steps[1:]
    if rest or isinstance(steps[0], int):
        return lambda _message, _body: None
    lower = name.lower()

    def read(message: Message, _: Any) -> Any:
        headers = message.headers
        if name in headers:
            return headers[name]
        return next((text for other, text in headers.items() if other.lower() == lower), None)

    return read


def _attribute_path(root: str, steps: tuple[Step, ...]) -> Expression:
    if root == "keys":
        return lambda message, _: _walk(list(message.keys), steps)
    if steps:
        return lambda _message, _body: None
    if root == "topic":
        return lambda message, _: message.topic
    return lambda message, _: message.message_id


def _walk(value: Any, steps: tuple[Step, ...]) -> Any:
    for step in steps:
        if type(value) is dict and type(step) is str:
            value = value.get(step)
        elif type(value) is list and type(step) is int:
            value = value[step] if -len(value) <= step < len(value) else None
        else:
            return None
    return value
