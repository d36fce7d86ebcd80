"""Parses a chain of strategies: each entry a name, or a mapping of one name to its options."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from oncemq.config.model.fields import WrongValue


@dataclass(frozen=True, slots=True)
class StrategyChoice:
    """One strategy of a chain.

    Args:
        name: its registry name.
        options: as declared; not shown, since they may be secret.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


_FORM = "write a name, or a name with its options: unique_key: {fingerprint: [amount]}"


def _choice(entry: Any) -> StrategyChoice:
    if isinstance(entry, StrategyChoice):
        return entry
    if isinstance(entry, str) and entry:
        return StrategyChoice(str(entry))
    if isinstance(entry, Mapping) and len(entry) == 1:
        ((name, options),) = entry.items()
        if options is None or isinstance(options, Mapping):
            return StrategyChoice(str(name), dict(options or {}))
    if isinstance(entry, Mapping) and len(entry) > 1:
        raise WrongValue(
            "holds more than one strategy in one list entry",
            "begin each with a `-` of its own, and indent its options below it",
        )
    raise WrongValue("is not a strategy", _FORM)


def _choices(value: Any) -> Any:
    if isinstance(value, str):
        raise WrongValue(
            "should be a list", f"write [{value}]" if value.isidentifier() else "write [unique_key]"
        )
    return value


_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "object", "minProperties": 1, "maxProperties": 1},
    ]
}

Choice = Annotated[StrategyChoice, PlainValidator(_choice), WithJsonSchema(_SCHEMA)]


def _list(value: Any) -> tuple[StrategyChoice, ...]:
    _choices(value)
    if not isinstance(value, list | tuple):
        raise WrongValue("should be a list of strategies", "write [unique_key]")
    if not value:
        raise WrongValue("is an empty list", "write [none] if effects may happen more than once")
    return tuple(_choice(entry) for entry in value)


StrategyList = Annotated[
    tuple[StrategyChoice, ...],
    PlainValidator(_list),
    WithJsonSchema({"type": "array", "items": _SCHEMA, "minItems": 1}),
]
