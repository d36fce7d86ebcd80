"""Decodes bodies into payloads; refuses harmful ones: too large, too deep, or ambiguous."""

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from oncemq.errors import ClaimInvalid, Undecodable
from oncemq.message.compression import decompress
from oncemq.message.envelope import Message
from oncemq.message.headers import CLAIM, CONTENT_ENCODING
from oncemq.message.registry_header import (
    CONFLUENT_JSON,
    ID_HEADER,
    behind_header,
    explained,
    looks_registered,
)
from oncemq.registry import did_you_mean

Decoder = Callable[[Message], Any]
"""From a message to its decoded body; raises only Undecodable."""

Scan = Callable[[str, int], tuple[Any, int]]

_MAX_INTEGER_DIGITS: Final = 1000
_LONG_NUMBER: Final = b"0" * 300
_DIGITS_ALIKE: Final = bytes.maketrans(b"123456789E", b"000000000e")
_JSON_SPACE: Final = " \t\n\r"
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_ONLY_BRACKETS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[{]}"))


@dataclass(frozen=True, slots=True)
class Limits:
    """Maximum size of a body.

    Args:
        body_bytes: size as received and again after decompression; 4 MiB is also RocketMQ's own limit.
        json_depth: nesting of arrays and objects.
        json_values: fields, elements, arrays and objects together; this many take about 0.1 s to parse.
    """

    body_bytes: int = 4 * 1024 * 1024
    json_depth: int = 100
    json_values: int = 200_000


def make_decoder(body_format: str = "json", limits: Limits | None = None) -> Decoder:
    """Return the decoder of a topic's format: `json`, `confluent-json`, `text` (UTF-8) or `bytes`.

    Raises:
        ValueError: the format is unknown.
    """
    limits = limits or Limits()
    json_body = JsonBody(limits.json_depth, limits.json_values)
    formats: dict[str, Callable[[bytes], Any]] = {
        "json": json_body,
        CONFLUENT_JSON: lambda body: json_body(behind_header(body)),
        "text": _text,
        "bytes": bytes,
    }
    if body_format not in formats:
        raise ValueError(f"unknown format {body_format!r}{did_you_mean(body_format, list(formats))}")
    parse, largest = formats[body_format], limits.body_bytes
    registered = body_format == CONFLUENT_JSON

    def decode(message: Message) -> Any:
        body = message.body
        if CLAIM in message.headers:
            raise ClaimInvalid(
                "its body lies in a store, and the topic names none: write claim_check: at the topic"
            )
        if len(body) > largest:
            raise Undecodable(f"the body has {len(body):,} bytes, the most is {largest:,}")
        if CONTENT_ENCODING in message.headers:
            body = decompress(body, message.headers[CONTENT_ENCODING], largest)
        try:
            return json_body(body) if registered and ID_HEADER in message.headers else parse(body)
        except Undecodable as error:
            raise explained(message, body, body_format, error) from None

    return decode


class JsonBody:
    """JSON as in RFC 8259, in UTF-8, where every name and number has one meaning.

    Also refused: NaN and infinities, numbers that overflow, integers of more than a thousand digits, an object
    that names a field twice, lone surrogates, too deep nesting. A byte order mark is skipped.
    """

    __slots__ = ("_careful", "_depth", "_long", "_short", "_thorough", "_values")

    def __init__(self, depth: int, values: int) -> None:
        self._depth = depth
        self._values = values
        careful = json.JSONDecoder(
            object_pairs_hook=_unique_fields,
            parse_float=_finite,
            parse_int=_short_integer,
            parse_constant=_no_constant,
        )
        # Checking each number costs time; a body that cannot hold a bad number is parsed without.
        short = json.JSONDecoder(
            object_pairs_hook=_unique_fields, parse_float=_finite, parse_constant=_no_constant
        )
        long = json.JSONDecoder(object_pairs_hook=_unique_fields, parse_constant=_no_constant)
        self._careful: Scan = careful.scan_once  # type: ignore[attr-defined]
        self._short: Scan = short.scan_once  # type: ignore[attr-defined]
        self._long: Scan = long.scan_once  # type: ignore[attr-defined]
        self._thorough = careful.decode

    def __call__(self, body: bytes) -> Any:
        """Return the value of `body`.

        Raises:
            Undecodable: it is refused; the text says why and, if known, where.
        """
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            raise _not_utf8(body, error) from None
        if len(body) > self._values:
            self._refuse_crowd(body)
        if body.count(b"[") + body.count(b"{") > self._depth:
            self._refuse_depth(body)
        scan = self._short if len(body) <= _MAX_INTEGER_DIGITS else self._scan_for(body)
        try:
            payload, end = scan(text, 0)
        except StopIteration:
            payload, end = self._from_the_start(text), len(text)
        except (ValueError, RecursionError) as error:
            raise _explained(error) from None
        if end != len(text) and text[end:].strip(_JSON_SPACE):
            raise Undecodable(f"more follows after the end of the JSON value, at {_place(text, end)}")
        if "\\u" in text and _SURROGATE_ESCAPE.search(text):
            _refuse_lone_surrogates(payload)
        return payload

    def _scan_for(self, body: bytes) -> Scan:
        """Return the parser without number checks, if there is no exponent and no long run of digits."""
        shape = body.translate(_DIGITS_ALIKE)
        return self._careful if b"0e" in shape or _LONG_NUMBER in shape else self._long

    def _from_the_start(self, text: str) -> Any:
        """Parse a text that does not begin with a value: spaces, a byte order mark, or garbage."""
        if not text.strip(_JSON_SPACE + "\ufeff"):
            raise Undecodable("the body is empty, where JSON was expected")
        try:
            return self._thorough(text.removeprefix("\ufeff"))
        except (ValueError, RecursionError) as error:
            raise _explained(error) from None

    def _refuse_depth(self, body: bytes) -> None:
        """Measure the nesting before parsing: a parser that recurses too deep may crash the process."""
        brackets = _without_strings(body).translate(_ONLY_BRACKETS, _NO_BRACKETS)
        steps, level = memoryview(brackets).cast("b"), 0
        for start in range(0, len(steps), 4096):
            levels = list(accumulate(steps[start : start + 4096], initial=level))
            if max(levels) > self._depth:
                raise Undecodable(f"the JSON is nested deeper than {self._depth} levels")
            level = levels[-1]

    def _refuse_crowd(self, body: bytes) -> None:
        if _separators(body) <= self._values:
            return
        # A body with far too many values shows it in its first part, which is cheap to check.
        for part in (body[: 4 * self._values], body):
            if _separators(_without_strings(part)) > self._values:
                raise Undecodable(f"the JSON holds more than {self._values:,} values")


def _without_strings(body: bytes) -> bytes:
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(plain.split(b'"')[::2])


def _separators(body: bytes) -> int:
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def _text(body: bytes) -> str:
    if looks_registered(body):
        raise Undecodable("a schema registry's header is no text")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise _not_utf8(body, error) from None


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise Undecodable(f"an object names the field {_shown(twice)} twice; which one counts is not defined")
    return fields


def _finite(digits: str) -> float:
    number = float(digits)
    if number - number != 0.0:
        raise Undecodable(f"the number {digits[:20]} is too large")
    return number


def _short_integer(digits: str) -> int:
    if len(digits) > _MAX_INTEGER_DIGITS:
        raise Undecodable(f"an integer has {len(digits):,} digits, the most is {_MAX_INTEGER_DIGITS:,}")
    return int(digits)


def _no_constant(name: str) -> Any:
    raise Undecodable(f"{name} is not JSON")


def _refuse_lone_surrogates(payload: Any) -> None:
    try:
        json.dumps(payload, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Undecodable(
            "a text holds half of a surrogate pair (\\ud800 to \\udfff), which is no character"
        ) from None


def _not_utf8(body: bytes, error: UnicodeDecodeError) -> Undecodable:
    if body.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00")):
        return Undecodable("the body is not UTF-8; it looks like UTF-16 or UTF-32")
    if body.startswith(b"\x1f\x8b"):
        return Undecodable(
            "the body is not UTF-8; it looks like gzip without the header content-encoding: gzip"
        )
    return Undecodable(f"the body is not UTF-8: {error.reason} at byte {error.start + 1:,}")


def _explained(error: ValueError | RecursionError) -> Undecodable:
    if isinstance(error, json.JSONDecodeError):
        return Undecodable(f"the body is not JSON: {error.msg} at {_place(error.doc, error.pos)}")
    if isinstance(error, RecursionError):
        return Undecodable("the JSON is nested too deep")
    return Undecodable("a number in the JSON is too long")


def _place(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    return f"line {line:,} column {column:,}"


def _shown(name: str) -> str:
    return ascii(name if len(name) <= 40 else name[:40] + "…")
