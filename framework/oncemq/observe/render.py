"""Formats of a log line: text for a terminal, and JSON; both are one line, whatever they contain."""

import json
import re
from collections.abc import Mapping, MutableMapping
from typing import Any

from oncemq.common.redaction import escape

_BARE = re.compile(r"[^\s\"'=\\]+")
_COLOURS = {
    "debug": "\x1b[2m",
    "info": "\x1b[32m",
    "warning": "\x1b[33m",
    "error": "\x1b[31m",
    "critical": "\x1b[1;31m",
}
_DIM = "\x1b[2m"
_BOLD = "\x1b[1m"
_RESET = "\x1b[0m"
_FIRST = ("time", "level", "event")


def json_line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    """Return the event as one JSON object: time, level and event first, pure ASCII."""
    ordered = {name: event.pop(name) for name in _FIRST if name in event}
    return json.dumps({**ordered, **event}, ensure_ascii=True, allow_nan=False, default=str)


class ConsoleLine:
    """Renders an event as `time level event name=value …`; a traceback follows, each line marked.

    Args:
        colours: whether to write ANSI colours; those in values are always escaped.
    """

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours

    def __call__(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
        """Return the line."""
        time, level = str(event.pop("time", "")), str(event.pop("level", "info"))
        text, trace = escape(str(event.pop("event", ""))), event.pop("exception", None)
        line = f"{self._paint(time, _DIM)} {self._paint(f'{level:<8}', _COLOURS.get(level, ''))} "
        line += self._paint(text, _BOLD) + self._pairs(event)
        return line if trace is None else line + self._trace(str(trace))

    def _paint(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_RESET}" if self._colours and colour else text

    def _pairs(self, fields: Mapping[str, Any]) -> str:
        return "".join(f" {self._paint(_text(name), _DIM)}={_value(value)}" for name, value in fields.items())

    def _trace(self, trace: str) -> str:
        # The mark keeps a line of an error's text from being taken for a line of the log.
        return "".join(f"\n    | {escape(line)}" for line in trace.split("\n"))


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    return escape(json.dumps(value, ensure_ascii=False, default=str))


def _text(text: str) -> str:
    if _BARE.fullmatch(text) and text.isprintable():
        return text
    backslash, quote = "\\", '"'
    return f'"{escape(text.replace(backslash, backslash * 2).replace(quote, backslash + quote))}"'
