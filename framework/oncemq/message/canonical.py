"""Writes content in canonical form: equal for equal content, whatever its order, spelling or Python type.

The rules, version 2:

- The fields of an object are sorted by name; models and dataclasses are objects of their fields.
- Numbers are equal by value: 1, 1.0 and Decimal("1.00") are the same number; true is not a number.
- Sets are the sorted list of their members; tuples are lists.
- A datetime with an offset equals the same moment in UTC; other dates, times, UUIDs, enumerations and paths are their
  texts or values. Bytes equal none of these texts.

A digest of this form begins with `2:`. A digest without it is from an earlier version, which compared the JSON text.
"""

import base64
import json
import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from hashlib import blake2b
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

_DIGEST_SIZE = 28
_PREFIX = "2:"


class NotCanonical(ValueError):
    """The content nests too deeply, or names a field twice."""


def canonical(value: Any) -> str:
    """Return the canonical text of `value`.

    Raises:
        pydantic_core.PydanticSerializationError: it holds a value that has no JSON form.
        NotCanonical: it nests too deeply.
    """
    try:
        return _text(value)
    except RecursionError:
        raise NotCanonical("it nests too deeply") from None


def canonical_json(body: bytes) -> str:
    """Return the canonical text of a JSON document.

    Raises:
        ValueError: it is not JSON, or names a field twice, which parsers resolve differently.
    """
    try:
        return _text(json.loads(body, parse_float=Decimal, object_pairs_hook=_once_each))
    except RecursionError:
        raise NotCanonical("it nests too deeply") from None
    except ArithmeticError:
        raise NotCanonical("it holds a number that is too large to compare") from None


def digest(text: str) -> str:
    """Return the digest of a canonical text, 64 characters at most."""
    encoded = text.encode(errors="surrogatepass")
    return _PREFIX + blake2b(encoded, digest_size=_DIGEST_SIZE).hexdigest()


def is_canonical(digest_: str) -> bool:
    """Return whether a digest was made from a canonical text, not by an earlier version."""
    return digest_.startswith(_PREFIX)


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise NotCanonical("it names a field twice")
    return found


def _text(value: Any) -> str:  # noqa: PLR0911 - one line for each kind
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, Enum):
        return _text(value.value)
    if isinstance(value, str):
        return json.dumps(str(value))
    if isinstance(value, int | float | Decimal):
        return _number(value)
    if isinstance(value, BaseModel):
        return _object({**dict(value), **(value.model_extra or {})})
    if isinstance(value, Mapping):
        return _object(value)
    if isinstance(value, list | tuple):
        return f"[{','.join([_text(item) for item in value])}]"
    if isinstance(value, AbstractSet):
        return f"[{','.join(sorted([_text(item) for item in value]))}]"
    if is_dataclass(value) and not isinstance(value, type):
        return _object({item.name: getattr(value, item.name) for item in fields(value)})
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return "b" + json.dumps(base64.b64encode(value).decode())
    if isinstance(value, datetime):
        with suppress(OverflowError):  # near the first and the last possible moment
            value = value.astimezone(UTC) if value.tzinfo else value
        return json.dumps(value.isoformat())
    if isinstance(value, date | time):
        return json.dumps(value.isoformat())
    if isinstance(value, timedelta):
        return f"d{value // timedelta(microseconds=1)}"
    return _text(to_jsonable_python(value))


def _object(value: Mapping[Any, Any]) -> str:
    pairs = sorted((_name(name), _text(part)) for name, part in value.items())
    return "{" + ",".join([f"{name}:{part}" for name, part in pairs]) + "}"


def _name(name: Any) -> str:
    if isinstance(name, str):
        return json.dumps(str(name))
    # As JSON does: there, names are text.
    return json.dumps(str(name) if type(name) is int else _text(name))


def _number(value: float | Decimal) -> str:
    """Return digits and an exponent of ten, without trailing zeros; NaN and infinities have names."""
    if isinstance(value, int):
        # By its own digits: a Decimal's context would round.
        digits = format(Decimal(value), "f")
        sign, rest = ("-", digits[1:]) if digits.startswith("-") else ("", digits)
        kept = rest.rstrip("0")
        return f"{sign}{kept}e{len(rest) - len(kept)}" if kept else "0"
    if isinstance(value, float):
        if not math.isfinite(value):
            return f"n{value}"
        value = Decimal(repr(value))
    if not value.is_finite():
        return f"n{str(value).lower()}"
    negative, digits_, exponent = value.as_tuple()
    text = "".join(map(str, digits_)).lstrip("0")
    kept = text.rstrip("0")
    if not kept or not isinstance(exponent, int):
        return "0"
    return f"{'-' if negative else ''}{kept}e{exponent + len(text) - len(kept)}"
