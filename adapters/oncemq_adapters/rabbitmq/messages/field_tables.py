"""Reads AMQP properties and field tables as spans of bytes, so that copies lose nothing and no content can break the reader.

pika's own reader raises for what producers do send: times beyond year 9999, NaN, names that are no UTF-8, deep nesting. And it
does not write back what it has read: fractions are cut off, integers change their width.
"""

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from struct import Struct, error
from typing import Any, Final, NamedTuple

from oncemq.errors import Undecodable

MAX_DEPTH: Final = 32
"""Levels of nested tables and arrays that are shown; a copy keeps all of them."""
MAX_SHOWN: Final = 10_000
"""Values inside tables and arrays that are shown for one message."""

_SHORT: Final = "short"
_TABLE: Final = "table"
# In the order of their flags, from the highest bit down.
_PROPERTIES: Final = (
    ("content_type", _SHORT),
    ("content_encoding", _SHORT),
    ("headers", _TABLE),
    ("delivery_mode", 1),
    ("priority", 1),
    ("correlation_id", _SHORT),
    ("reply_to", _SHORT),
    ("expiration", _SHORT),
    ("message_id", _SHORT),
    ("timestamp", 8),
    ("type", _SHORT),
    ("user_id", _SHORT),
    ("app_id", _SHORT),
    ("cluster_id", _SHORT),
)
_HIGHEST_FLAG: Final = 15
_FLAGS: Final = Struct(">H")
_LENGTH: Final = Struct(">I")
_LONG_STRINGS: Final = b"SxAF"
_FIXED: Final = {
    b"t"[0]: Struct(">?"),
    b"b"[0]: Struct(">b"),
    b"B"[0]: Struct(">B"),
    b"U"[0]: Struct(">h"),
    b"s"[0]: Struct(">h"),
    b"u"[0]: Struct(">H"),
    b"I"[0]: Struct(">i"),
    b"i"[0]: Struct(">I"),
    b"L"[0]: Struct(">q"),
    b"l"[0]: Struct(">q"),
    b"f"[0]: Struct(">f"),
    b"d"[0]: Struct(">d"),
    b"D"[0]: Struct(">Bi"),
    b"T"[0]: Struct(">Q"),
    b"V"[0]: Struct(">"),
}


class Unreadable(Undecodable):
    """Bytes that cannot be split into properties or fields."""


class Field(NamedTuple):
    """One entry of a table.

    Args:
        name: as sent.
        value: its type's letter and its content, as sent.
    """

    name: bytes
    value: bytes


def split_properties(raw: bytes) -> dict[str, bytes]:
    """Return each property that is set, as sent, in the order of the protocol.

    Raises:
        Unreadable: the bytes end too soon, or more follow.
    """
    try:
        flags, at = _FLAGS.unpack_from(raw, 0)[0], _FLAGS.size
    except error:
        raise Unreadable("the properties have no flags") from None
    found: dict[str, bytes] = {}
    for place, (name, kind) in enumerate(_PROPERTIES):
        if flags & (1 << (_HIGHEST_FLAG - place)):
            end = _end_of(raw, at, kind)
            found[name] = raw[at:end]
            at = end
    if flags & 0b11 or at != len(raw):
        raise Unreadable("the properties hold more than AMQP 0-9-1 knows")
    return found


def join_properties(found: Mapping[str, bytes]) -> bytes:
    """Return what `split_properties` takes apart."""
    flags, pieces = 0, [b""]
    for place, (name, _) in enumerate(_PROPERTIES):
        if name in found:
            flags |= 1 << (_HIGHEST_FLAG - place)
            pieces.append(found[name])
    pieces[0] = _FLAGS.pack(flags)
    return b"".join(pieces)


def split_table(raw: bytes) -> list[Field]:
    """Return the entries of a table that begins with its length; nested ones stay as they are.

    Raises:
        Unreadable: a length is wrong, or a type is unknown.
    """
    if len(raw) < _LENGTH.size or _LENGTH.unpack_from(raw)[0] != len(raw) - _LENGTH.size:
        raise Unreadable("the header table has another length than it says")
    found, at = [], _LENGTH.size
    while at < len(raw):
        name_end = _end_of(raw, at, _SHORT)
        end = _end_of_value(raw, name_end)
        found.append(Field(raw[at + 1 : name_end], raw[name_end:end]))
        at = end
    return found


def join_table(fields: Iterable[Field]) -> bytes:
    """Return what `split_table` takes apart."""
    pieces = [bytes((len(name),)) + name + value for name, value in fields]
    content = b"".join(pieces)
    return _LENGTH.pack(len(content)) + content


def text_field(name: str, text: str) -> Field:
    """Return an entry that holds text; half surrogate pairs, which no UTF-8 has, are written as escapes."""
    raw_name = name.encode(errors="backslashreplace")[:255]
    raw = text.encode(errors="backslashreplace")
    return Field(raw_name, b"S" + _LENGTH.pack(len(raw)) + raw)


def short_text(raw: bytes) -> str:
    """Return the text of a short string; bytes that are no UTF-8 are shown as escapes."""
    return raw[1:].decode(errors="backslashreplace")


def shown_headers(raw: bytes) -> dict[str, str]:
    """Return a table as text, as far as it can be read; never raises."""
    try:
        fields = split_table(raw)
    except Unreadable:
        fields = _readable_part(raw)
    budget = [MAX_SHOWN]
    return {
        field.name.decode(errors="backslashreplace"): _shown(_value(field.value, MAX_DEPTH, budget))
        for field in fields
    }


def _readable_part(raw: bytes) -> list[Field]:
    found, at = [], _LENGTH.size
    try:
        while at < len(raw):
            name_end = _end_of(raw, at, _SHORT)
            end = _end_of_value(raw, name_end)
            found.append(Field(raw[at + 1 : name_end], raw[name_end:end]))
            at = end
    except Unreadable:
        pass
    return found


def _end_of(raw: bytes, at: int, kind: Any) -> int:
    if at >= len(raw):
        raise Unreadable("the header ends too soon")
    if kind is _SHORT:
        end = at + 1 + raw[at]
    elif kind is _TABLE:
        end = _after_length(raw, at)
    else:
        end = at + kind
    if end > len(raw):
        raise Unreadable("the header ends too soon")
    return int(end)


def _end_of_value(raw: bytes, at: int) -> int:
    if at >= len(raw):
        raise Unreadable("the header table ends in the middle of an entry")
    kind = raw[at]
    if kind in _LONG_STRINGS:
        end = _after_length(raw, at + 1)
    elif kind in _FIXED:
        end = at + 1 + _FIXED[kind].size
    else:
        raise Unreadable(f"the header table holds a value of the unknown type {bytes((kind,))!r}")
    if end > len(raw):
        raise Unreadable("the header table ends in the middle of an entry")
    return end


def _after_length(raw: bytes, at: int) -> int:
    try:
        return at + _LENGTH.size + int(_LENGTH.unpack_from(raw, at)[0])
    except error:
        raise Unreadable("the header ends too soon") from None


def _value(raw: bytes, depth: int, budget: list[int]) -> Any:
    """Return one value; a value that is too deep, too large or broken is named instead."""
    budget[0] -= 1
    if budget[0] < 0:
        return "(more values than are shown)"
    kind, content = raw[0], raw[1:]
    if kind not in b"AF":
        return _plain(kind, content)
    if depth == 0:
        return "(nested deeper than is shown)"
    if kind == b"A"[0]:
        return _array(content, depth - 1, budget)
    return {
        field.name.decode(errors="backslashreplace"): _value(field.value, depth - 1, budget)
        for field in _readable_part(content)
    }


def _plain(kind: int, content: bytes) -> Any:
    if kind in b"Sx":
        return content[_LENGTH.size :].decode(errors="backslashreplace")
    found = _FIXED[kind].unpack(content)
    if kind == b"T"[0]:
        return _time(found[0])
    if kind == b"D"[0]:
        return str(Decimal(found[1]).scaleb(-found[0]))
    return found[0] if found else None


def _array(raw: bytes, depth: int, budget: list[int]) -> list[Any]:
    found, at = [], _LENGTH.size
    try:
        while at < len(raw) and budget[0] >= 0:
            end = _end_of_value(raw, at)
            found.append(_value(raw[at:end], depth, budget))
            at = end
    except Unreadable as unreadable:
        found.append(f"({unreadable})")
    return found


def _time(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return str(seconds)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
