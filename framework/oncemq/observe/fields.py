"""Fields of log lines: messages, errors and other values, short and without bodies."""

import math
import os
import traceback
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from oncemq.common.durations import format_duration
from oncemq.common.error_text import attribute, clean_text, name_of, text_of
from oncemq.common.redaction import MASK, Redactor, is_secret_name
from oncemq.message.envelope import Delivery, Envelope, Message, OutgoingMessage
from oncemq.message.headers import trace_of

MAX_TEXT = 2_000
"""Characters of one value in a log line."""
MAX_READ = 20_000
"""Characters searched for credentials; more than are shown, so that the cut hides no credential's end."""
_MOST_TRACE = 200_000
MAX_ELEMENTS = 50
MAX_DEPTH = 4

_OUR_PACKAGES = frozenset({"oncemq", "oncemq_adapters", "oncemq_strategies"})


def message_fields(consumer: str, envelope: Envelope) -> dict[str, Any]:
    """Return the log fields of this message."""
    return {
        "consumer": consumer,
        "topic": envelope.topic,
        "key": envelope.key,
        "identity": envelope.identity,
        "attempt": envelope.attempt,
        **trace_of(envelope.headers),
    }


def delivery_fields(consumer: str, delivery: Delivery) -> dict[str, Any]:
    """Return the same for a delivery; a refused delivery has no identity, and a key only where it is refused for its body."""
    if delivery.envelope is not None:
        return message_fields(consumer, delivery.envelope)
    message, known = delivery.message, delivery.known_key
    return {
        "consumer": consumer,
        "topic": message.topic,
        **({"key": known} if known else {}),
        "message_id": message.message_id,
        "attempt": message.attempt,
        **trace_of(message.headers),
    }


def error_text(error: BaseException) -> str:
    """Return class and text of an error; never raises."""
    text = text_of(error)
    return f"{name_of(error)}: {text}" if text else name_of(error)


def error_place(error: BaseException) -> str | None:
    """Return `file:line in function` of the user's code that raised it or called the raising code; None without one; never raises."""
    found = None
    # Not traceback.extract_tb, which reads the source of every frame.
    for frame, line in traceback.walk_tb(attribute(error, "__traceback__")):
        code = frame.f_code
        if _is_users(str(frame.f_globals.get("__name__", "")), code.co_filename):
            found = code, line
    if found is None:
        return None
    code, line = found
    return f"{os.path.basename(code.co_filename)}:{line} in {code.co_name}"  # noqa: PTH119 - once per failure


def handler_trace(error: BaseException) -> str:
    """Return the end of an error's traceback from the user's code on, with its causes; never raises, not yet redacted.

    An error raised by a library alone, such as a refusal of the framework's, has none: an empty text.
    """
    try:
        trace = error.__traceback__
        while trace is not None and not _is_users(
            str(trace.tb_frame.f_globals.get("__name__", "")), trace.tb_frame.f_code.co_filename
        ):
            trace = trace.tb_next
        if trace is None:
            return ""
        return clean_text(
            "".join(traceback.format_exception(type(error), error, trace)).rstrip("\n"), _MOST_TRACE
        )
    except BaseException:  # the exception's own attributes may raise anything
        return ""


@lru_cache(maxsize=1024)
def _is_users(module: str, filename: str) -> bool:
    package = module.partition(".")[0]
    return package not in _OUR_PACKAGES and not (
        "site-packages" in filename or "/lib/python3" in filename or filename.startswith("<")
    )


class Cleaner:
    """Converts any value into one that is safe to show: text, numbers, and lists and mappings of these."""

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact

    def text(self, text: str) -> str:
        """Return the text redacted and cut."""
        text = self._redact(text[:MAX_READ])
        return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text)} characters)"

    def field(self, name: str, value: Any, depth: int = 0) -> Any:
        """Return the shown value of the field `name`."""
        return MASK if is_secret_name(name) and value is not None else self.value(value, depth)

    def value(self, value: Any, depth: int = 0) -> Any:
        """Return the shown form of `value`; bytes and messages show no content."""
        if value is None or isinstance(value, bool | int | float):
            return _number(value)
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, list | tuple | set | frozenset):
            return self._elements(value, depth)
        if isinstance(value, Envelope):
            return self._mapping(message_fields("", value), depth)
        return self.text(_text(value))

    def trace(self, text: str) -> str:
        """Return a traceback, redacted; only its end if it is very long, because that contains the error."""
        return self._redact(text[-MAX_READ:])

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        if depth >= MAX_DEPTH:
            return "…"
        shown = list(value.items())[:MAX_ELEMENTS]
        return {
            self.text(str(name)): self.field(str(name), element, depth + 1)
            for name, element in shown
            if element != ""
        }

    def _elements(self, value: Iterable[Any], depth: int) -> Any:
        if depth >= MAX_DEPTH:
            return "…"
        return [self.value(element, depth + 1) for element in list(value)[:MAX_ELEMENTS]]


def _number(value: float | None) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool):
        return value
    return int(value) if value.bit_length() < 256 else f"<integer of {value.bit_length()} bits>"


def _text(value: object) -> str:
    match value:
        case str():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return f"<{len(value)} bytes>"
        case timedelta():
            return format_duration(value)
        case datetime():
            return value.isoformat()
        case BaseException():
            return error_text(value)
    return _represent(value)


def _represent(value: object) -> str:
    if isinstance(value, Delivery | Message | OutgoingMessage):
        return f"<{type(value).__name__}>"
    try:
        return clean_text(repr(value))
    except BaseException:  # a foreign object's __repr__ may raise anything
        return f"<{type(value).__qualname__} whose repr fails>"
