"""Kinds of single values in a configuration: which values each accepts, and its JSON Schema."""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import PlainValidator, WithJsonSchema

from oncemq.common.durations import parse_duration
from oncemq.config.source.secrets import Secret, SecretUrl
from oncemq.config.source.tree import Expanded
from oncemq.observe.endpoint import Address as ListenAddress

_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_BYTES = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(" + "|".join(_UNITS) + ")")
VARIABLE = {"type": "string", "pattern": r"\$\{"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
BETWEEN: Final = "/"
"""Between a consumer and one of its topics: `count/orders`."""
_TOPICS_EXAMPLE: Final = "write topics: [orders, orders_legacy]"
_NOT_IN_GROUPS: Final = re.compile(r"[^A-Za-z0-9_-]")
_EXCEPTION = re.compile(r"[A-Za-z_]\w*([.:][A-Za-z_]\w*)*")
_OBJECT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class WrongValue(ValueError):
    """A value is not valid for its field."""

    def __init__(self, text: str, advice: str = "") -> None:
        super().__init__(text)
        self.advice = advice


def _kind(value: Any) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", dict: "a mapping", list: "a list"}
    return "nothing" if value is None else names.get(type(value), type(value).__name__)


def text(value: Any) -> str:
    """Return `value` if it is non-empty text."""
    if not isinstance(value, str):
        advice = "put it into quotes" if isinstance(value, bool | int | float) else "write one text"
        raise WrongValue(f"should be text, but is {_kind(value)}", advice)
    if not value.strip():
        raise WrongValue("should be text, but is empty")
    return str(value)


def name(value: Any) -> str:
    """Return `value` if it is a valid name for an app, a broker or a consumer everywhere: tables, queues, metrics."""
    found = text(value)
    if not _NAME.fullmatch(found):
        raise WrongValue(
            f"{found[:80]!r} cannot be a name",
            "use letters, digits, _ and -, beginning with a letter, 64 at most",
        )
    return found


def _secret(value: Any) -> Secret:
    return value if isinstance(value, Secret) else Secret(text(value))


def _url(value: Any) -> SecretUrl:
    if isinstance(value, SecretUrl):
        return value
    found = text(value)
    scheme, separator, _rest = found.partition("://")
    if not separator or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        raise WrongValue("is not a URL", "write scheme://host:port/…")
    return SecretUrl(found)


def duration(value: Any) -> timedelta:
    """Return a duration such as `30s`; a bare number has no unit and is refused."""
    if isinstance(value, timedelta):
        if value <= timedelta(0):
            raise WrongValue("is not a usable duration", "a duration must be longer than zero")
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise WrongValue(f"{value} has no unit", f"write {value}s, {value}ms, {value}m, {value}h or {value}d")
    try:
        return parse_duration(text(value))
    except WrongValue:
        raise
    except ValueError as error:
        what, _colon, advice = str(error).partition(": ")
        problem = WrongValue(what, advice)
    raise problem


def count(value: Any) -> int:
    """Return a whole number from 1."""
    value = value.scalar if isinstance(value, Expanded) else value
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongValue(
            f"should be a whole number, but is {_kind(value) if not isinstance(value, str) else 'text'}"
        )
    if not 1 <= value <= 1_000_000:
        raise WrongValue("is out of range", "write a whole number from 1 to 1000000")
    return value


def byte_size(value: Any) -> int:
    """Return a number of bytes such as `512MiB` or `1GiB`; a bare number has no unit and is refused."""
    value = value.scalar if isinstance(value, Expanded) else value
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise WrongValue(f"{value} has no unit", f"write {value}MiB or {value}GiB")
    found = _BYTES.fullmatch(text(value).strip())
    if found is None:
        raise WrongValue(f"{str(value)[:80]!r} is not a size of memory", "write 512MiB, 1GiB or 1.5GiB")
    size = int(float(found[1]) * _UNITS[found[2]])
    if size < _UNITS["MiB"]:
        raise WrongValue(
            f"{str(value)[:80]!r} is less than any process needs", "write 512MiB, 1GiB or 1.5GiB"
        )
    return size


def large_count(value: Any) -> int:
    """Return a whole number from 1 to a thousand million."""
    value = value.scalar if isinstance(value, Expanded) else value
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongValue(f"should be a whole number, but is {_kind(value)}", "write one from 1")
    if not 1 <= value <= 1_000_000_000:
        raise WrongValue("is out of range", "write a whole number from 1 to 1000000000")
    return value


def _workers(value: Any) -> int | None:
    if value == "auto":
        return None
    try:
        return count(value)
    except WrongValue as error:
        problem = WrongValue(str(error), "write auto or a whole number from 1")
    raise problem


def number(low: float, high: float) -> Callable[[Any], float]:
    """Return a check for a number from `low` to `high`."""

    def check(value: Any) -> float:
        value = value.scalar if isinstance(value, Expanded) else value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise WrongValue("should be a number", f"write one from {low:g} to {high:g}")
        if not low <= value <= high:
            raise WrongValue(f"{value:g} is out of range", f"write a number from {low:g} to {high:g}")
        return float(value)

    return check


def _expressions(value: Any) -> tuple[str, ...]:
    if isinstance(value, list | tuple):
        if not value:
            raise WrongValue("is an empty list", "write an expression like body.order_id, or leave it out")
        return tuple(text(part) for part in value)
    return (text(value),)


def _names(value: Any) -> tuple[str, ...]:
    parts = value if isinstance(value, list | tuple) else [value]
    return tuple(text(part) for part in parts)


def _topics(value: Any) -> dict[str, str | None]:
    """Return the groups by topic; None where it is the usual one."""
    if isinstance(value, Mapping):
        found = [(text(name), None if group is None else text(group)) for name, group in value.items()]
    elif isinstance(value, list | tuple):
        found = [(text(name), None) for name in value]
    else:
        raise WrongValue("should be a list of topics", f"{_TOPICS_EXAMPLE}; or topic: for a single one")
    if not found:
        raise WrongValue("names no topic", _TOPICS_EXAMPLE)
    names = [name for name, _ in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise WrongValue(f"names {twice!r} twice", "keep it once")
    return dict(found)


def group_of(usual: str, topic: str) -> str:
    """Return the group in which a consumer of several topics reads this one, in characters that every broker takes."""
    return f"{usual}-{_NOT_IN_GROUPS.sub('-', topic)}"


def reference(value: Any) -> Any:
    """Return `value` if it names a Python object as `module:name`, or is a function or class."""
    if callable(value):
        return value
    found = text(value)
    if not _OBJECT.fullmatch(found):
        raise WrongValue(
            f"{found[:80]!r} does not name a Python object", "write module:name, like handlers:award_points"
        )
    return found


def _middleware(value: Any) -> Any:
    """Return `value` if it names a class as `module:Class`, or is an object or a class itself."""
    plain = value is None or isinstance(value, str | int | float | Mapping)
    return reference(value) if plain else value


def exception(value: Any) -> Any:
    """Return `value` if it names a class of exceptions, or is one: `ValueError`, `module:Class`, `module.Class`."""
    if isinstance(value, type) and issubclass(value, BaseException):
        return value
    found = text(value)
    if not _EXCEPTION.fullmatch(found):
        raise WrongValue(
            f"{found[:80]!r} does not name an exception",
            "write its class, like ValueError or billing:CardDeclined",
        )
    return found


def _non_negative(value: Any) -> int:
    return 0 if value == 0 and type(value) is int else count(value)


def address(value: Any) -> ListenAddress:
    """Return an address to listen on, `host:port`."""
    if isinstance(value, ListenAddress):
        return value
    found = text(value)
    host, _colon, port = found.rpartition(":")
    if len(port) > 5 or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise WrongValue(f"{found[:80]!r} is not an address", "write host:port, like 127.0.0.1:9090")
    return ListenAddress(host.strip("[]") or "0.0.0.0", int(port))  # noqa: S104 - `:9090` means all addresses, as usual


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise WrongValue(f"should be a mapping, but is {_kind(value)}")
    return {str(key): child for key, child in value.items()}


def _path(value: Any) -> Path:
    return value if isinstance(value, Path) else Path(text(value))


def one_of(*words: str) -> Callable[[Any], str]:
    """Return a check for one of `words`."""

    def check(value: Any) -> str:
        found = str(value) if isinstance(value, str) else ""
        if found not in words:
            raise WrongValue(f"{value!r} is not possible here", f"write {' or '.join(words)}")
        return found

    return check


_DURATION_SCHEMA = {
    "anyOf": [{"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(ms|s|m|h|d)\s*$"}, VARIABLE],
    "examples": ["500ms", "30s", "10m", "7d"],
}
_TEXT_SCHEMA = {"type": "string", "minLength": 1}
_EXPRESSION_SCHEMA = {"anyOf": [_TEXT_SCHEMA, {"type": "array", "items": _TEXT_SCHEMA, "minItems": 1}]}

Text = Annotated[str, PlainValidator(text), WithJsonSchema(_TEXT_SCHEMA)]
Name = Annotated[
    str,
    PlainValidator(name),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": f"^{_NAME.pattern}$"}, VARIABLE]}),
]
SecretText = Annotated[Secret, PlainValidator(_secret), WithJsonSchema(_TEXT_SCHEMA)]
Url = Annotated[SecretUrl, PlainValidator(_url), WithJsonSchema(_TEXT_SCHEMA)]
Duration = Annotated[timedelta, PlainValidator(duration), WithJsonSchema(_DURATION_SCHEMA)]
Count = Annotated[
    int, PlainValidator(count), WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, VARIABLE]})
]
LargeCount = Annotated[
    int, PlainValidator(large_count), WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, VARIABLE]})
]
ByteSize = Annotated[
    int,
    PlainValidator(byte_size),
    WithJsonSchema(
        {
            "anyOf": [{"type": "string", "pattern": rf"^\s*{_BYTES.pattern}\s*$"}, VARIABLE],
            "examples": ["512MiB", "1GiB"],
        }
    ),
]
Workers = Annotated[
    int | None,
    PlainValidator(_workers),
    WithJsonSchema({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1}, VARIABLE]}),
]
NonNegative = Annotated[
    int,
    PlainValidator(_non_negative),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, VARIABLE]}),
]
Exceptions = Annotated[
    Any, PlainValidator(exception), WithJsonSchema({"type": "string", "examples": ["billing:CardDeclined"]})
]
Factor = Annotated[
    float,
    PlainValidator(number(1, 100)),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 1, "maximum": 100}, VARIABLE]}),
]
Share = Annotated[
    float,
    PlainValidator(number(0, 1)),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, VARIABLE]}),
]
Expressions = Annotated[tuple[str, ...], PlainValidator(_expressions), WithJsonSchema(_EXPRESSION_SCHEMA)]
Names = Annotated[tuple[str, ...], PlainValidator(_names), WithJsonSchema(_EXPRESSION_SCHEMA)]
TopicsField = Annotated[
    dict[str, str | None],
    PlainValidator(_topics),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True},
                {
                    "type": "object",
                    "additionalProperties": {"type": ["string", "null"]},
                    "minProperties": 1,
                    "description": "The group by topic; null = the usual one, `app-consumer-topic`.",
                },
                VARIABLE,
            ]
        }
    ),
]
Reference = Annotated[
    Any, PlainValidator(reference), WithJsonSchema({"type": "string", "examples": ["handlers:award_points"]})
]
Middlewares = tuple[
    Annotated[
        Any, PlainValidator(_middleware), WithJsonSchema({"type": "string", "examples": ["tenants:Tenant"]})
    ],
    ...,
]
Address = Annotated[
    ListenAddress,
    PlainValidator(address),
    WithJsonSchema({"type": "string", "examples": ["127.0.0.1:9090", ":9090"]}),
]
Options = Annotated[dict[str, Any], PlainValidator(_mapping), WithJsonSchema({"type": "object"})]
Folder = Annotated[Path, PlainValidator(_path), WithJsonSchema(_TEXT_SCHEMA)]
