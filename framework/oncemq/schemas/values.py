"""Rules of single keywords: lists of values, lengths, bounds and patterns of two schemas of one type."""

import math
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from oncemq.schemas.keywords import constraints, identical, shown

Reasons = Iterator[tuple[str, bool]]
"""Reasons in words, and whether they are certain."""

_LEAST = {
    "string": ("minLength", "characters"),
    "array": ("minItems", "items"),
    "object": ("minProperties", "fields"),
}
_MOST = {
    "string": ("maxLength", "characters"),
    "array": ("maxItems", "items"),
    "object": ("maxProperties", "fields"),
}


class ValueRules:
    """Compares what two schemas of the same type say about a value as a whole.

    Args:
        names: of the writer and of the reader, for the words.
    """

    def __init__(self, names: tuple[str, str]) -> None:
        self._writes, self._reads = names

    def differences(self, writer: Mapping[str, Any], reader: Mapping[str, Any]) -> Reasons:
        """Yield why a value that the writer allows may be refused by the reader."""
        if "enum" in writer:
            yield from self._listed(writer["enum"], reader)
            return
        if "enum" in reader:
            yield (
                f"{self._writes} allows any {writer['type']}, {self._reads} accepts only {_list(reader['enum'])}",
                True,
            )
            return
        kind = writer["type"]
        if kind in _LEAST:
            yield from self._sizes(kind, writer, reader)
        if kind == "string":
            yield from self._texts(writer, reader)
        if kind == "array" and reader.get("uniqueItems") and not writer.get("uniqueItems"):
            yield f"{self._reads} accepts no item twice, {self._writes} allows that", True
        if kind in ("number", "integer"):
            yield from self._numbers(writer, reader)

    def _listed(self, values: list[Any], reader: Mapping[str, Any]) -> Reasons:
        """Yield which of a few values are refused."""
        listed = reader.get("enum")
        absent = [
            value
            for value in values
            if listed is not None and not any(identical(value, other) for other in listed)
        ]
        if absent:
            yield (
                f"{self._writes} allows {_list(absent)}, {self._reads} accepts only {_list(listed or [])}",
                True,
            )
        for value in values:
            accepted = _accepts(reader, value)
            if value not in absent and accepted is None:
                yield f"whether {self._reads} accepts {shown(value)}", False
            elif value not in absent and not accepted:
                yield f"{self._writes} allows {shown(value)}, {self._reads} does not accept it", True

    def _sizes(self, kind: str, writer: Mapping[str, Any], reader: Mapping[str, Any]) -> Reasons:
        (least, noun), (most, _) = _LEAST[kind], _MOST[kind]
        fewest = writer.get(least, 0)
        if kind == "object":
            fewest = max(fewest, len(set(writer.get("required", ()))))
        if reader.get(least, 0) > fewest:
            yield (
                f"{self._reads} accepts {reader[least]} {noun} or more, {self._writes} allows {fewest}",
                True,
            )
        if most in reader and writer.get(most, math.inf) > reader[most]:
            allowed = writer.get(most, "any number")
            yield (
                f"{self._reads} accepts {reader[most]} {noun} at most, {self._writes} allows {allowed}",
                True,
            )

    def _texts(self, writer: Mapping[str, Any], reader: Mapping[str, Any]) -> Reasons:
        for name in ("pattern", "format"):
            wanted, given = reader.get(name), writer.get(name)
            if wanted is None or wanted == given:
                continue
            if given is None:
                yield f"{self._reads} accepts only the {name} {shown(wanted)}, {self._writes} any text", True
            else:
                yield f"whether all texts of {name} {shown(given)} are of {name} {shown(wanted)}", False

    def _numbers(self, writer: Mapping[str, Any], reader: Mapping[str, Any]) -> Reasons:
        whole = writer["type"] == "integer"
        for sign, word in ((1, "at least"), (-1, "at most")):
            wanted, given = _bound(reader, sign, whole=whole), _bound(writer, sign, whole=whole)
            if wanted is not None and (given is None or given < wanted):
                limit = _limit(reader, sign)
                allowed = "any" if given is None else _limit(writer, sign)
                yield f"{self._reads} accepts {word} {limit}, {self._writes} allows {allowed}", True
        step = reader.get("multipleOf")
        if step is not None:
            own = writer.get("multipleOf", 1 if whole else None)
            if own is None or Fraction(str(own)) % Fraction(str(step)) != 0:
                allowed = "any number" if own is None else f"multiples of {own}"
                yield f"{self._reads} accepts multiples of {step}, {self._writes} allows {allowed}", True


def _bound(schema: Mapping[str, Any], sign: int, *, whole: bool) -> tuple[float, bool] | None:
    """Return the lower bound (`sign` 1) or the negative of the upper one (-1), and whether it is excluded itself."""
    inclusive, exclusive = ("minimum", "exclusiveMinimum") if sign == 1 else ("maximum", "exclusiveMaximum")
    bounds: list[tuple[float, bool]] = []
    if inclusive in schema:
        bounds.append((sign * schema[inclusive], False))
    if exclusive in schema:
        bounds.append((sign * schema[exclusive], True))
    if whole:
        bounds = [(math.floor(at) + 1 if excluded else math.ceil(at), False) for at, excluded in bounds]
    return max(bounds, default=None)


def _limit(schema: Mapping[str, Any], sign: int) -> str:
    inclusive, exclusive = ("minimum", "exclusiveMinimum") if sign == 1 else ("maximum", "exclusiveMaximum")
    found = _bound(schema, sign, whole=False)
    if found is None:
        return "any"
    return f"{schema[exclusive]} (itself excluded)" if found[1] else f"{schema[inclusive]}"


def _accepts(reader: Mapping[str, Any], value: Any) -> bool | None:
    """Return whether a schema of the value's type accepts it; None if that is not known."""
    if isinstance(value, str):
        return _accepts_text(reader, value)
    if isinstance(value, bool) or value is None:
        return True
    if isinstance(value, int | float):
        single = {"type": "number", "minimum": value, "maximum": value}
        step = reader.get("multipleOf", 1 if reader["type"] == "integer" else None)
        fits = step is None or Fraction(str(value)) % Fraction(str(step)) == 0
        bounds = {name: at for name, at in reader.items() if name != "multipleOf"}
        return fits and not any(ValueRules(("", ""))._numbers(single, bounds))
    limits = constraints(reader) - {"type", "enum"}
    return None if limits else True


def _accepts_text(reader: Mapping[str, Any], value: str) -> bool | None:
    if not reader.get("minLength", 0) <= len(value) <= reader.get("maxLength", math.inf):
        return False
    if "format" in reader:
        return None
    try:
        return re.search(reader.get("pattern", ""), value) is not None
    except re.error:
        return None


def _list(values: list[Any]) -> str:
    texts = [shown(value) for value in values[:5]]
    more = f" and {len(values) - 5} more" if len(values) > 5 else ""
    return ", ".join(texts) + more
