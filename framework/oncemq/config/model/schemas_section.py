"""Fields below `schemas:`, and its short form: a folder."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema

from oncemq.config.model.fields import VARIABLE, Folder, WrongValue, count, one_of, text
from oncemq.config.model.section import Section
from oncemq.message.expressions import compile_expression
from oncemq.schemas.compatibility import Level

_LEVELS = tuple(level.value for level in Level)
CompatibilityLevel = Annotated[
    str, PlainValidator(one_of(*_LEVELS)), WithJsonSchema({"anyOf": [{"enum": list(_LEVELS)}, VARIABLE]})
]
POSSIBLE, NEVER = "possible", "never"
Undeclared = Annotated[
    str,
    PlainValidator(one_of(POSSIBLE, NEVER)),
    WithJsonSchema({"anyOf": [{"enum": [POSSIBLE, NEVER]}, VARIABLE]}),
]
_NUMBER = re.compile(r"v?([1-9][0-9]{0,8})")


def _versions(value: Any) -> dict[int, Any]:
    if not isinstance(value, Mapping) or not value:
        raise WrongValue(
            "should be a mapping of versions", "write {1: schemas/first.json, 2: events:OrderPaid}"
        )
    found: dict[int, Any] = {}
    for key, source in value.items():
        number = _NUMBER.fullmatch(str(key))
        if number is None:
            raise WrongValue(f"{str(key)[:80]!r} cannot be a version", "write a whole number from 1")
        if int(number[1]) in found:
            raise WrongValue(f"version {number[1]} stands there twice", "keep one")
        found[int(number[1])] = source if isinstance(source, Mapping | type) else text(source)
    return found


_SOURCE = {"anyOf": [{"type": "string", "minLength": 1}, {"type": "object"}]}
Versions = Annotated[
    dict[int, Any],
    PlainValidator(_versions),
    WithJsonSchema(
        {
            "type": "object",
            "patternProperties": {f"^{_NUMBER.pattern}$": _SOURCE},
            "additionalProperties": False,
        }
    ),
]


class Schemas(Section):
    """Registered versions of payload schemas; `oncemq schemas check` compares them."""

    folder: Folder | None = Field(
        None,
        description="Folder of JSON Schemas, relative to the file: `order.paid.v2.json` is version 2 of the topic order.paid; "
        "YAML works, too.",
        examples=["schemas"],
    )
    versions: dict[str, Versions] | None = Field(
        None,
        description="Versions of topics that are written elsewhere: a file, a type of yours as `module:Name`, or the schema.",
        examples=[{"order.paid": {1: "old/paid.json", 2: "events:OrderPaid"}}],
    )
    compatibility: CompatibilityLevel | None = Field(
        None,
        description="Level of topics that do not say another. Default backward.",
        examples=["full_transitive"],
    )
    undeclared_fields: Undeclared | None = Field(
        None,
        description="Whether bodies may have fields that their version allows without declaring them: `possible` (the default, as "
        "JSON Schema has it) or `never`, so that an optional field may be added.",
        examples=["never"],
    )


def _in_full(value: Any) -> Any:
    """Return a folder as the mapping that it stands for."""
    return {"folder": value} if isinstance(value, str | Path) else value


SchemasField = Annotated[Schemas, BeforeValidator(_in_full, json_schema_input_type=Folder | Schemas)]


@dataclass(frozen=True, slots=True)
class BodyVersionOption:
    """Where the bodies of a topic have their version.

    Args:
        expression: of a message's version; None = it is found by `registry_ids`, or always `without`.
        without: the version of messages that name none; None = these are refused.
        registry_ids: versions by the ids that a schema registry's clients write.
    """

    expression: str | None = None
    without: int | None = None
    registry_ids: Mapping[int | str, int] | None = None

    @property
    def named(self) -> list[int]:
        """Return the versions that it names, the lowest first."""
        found = {*(self.registry_ids or {}).values(), *(() if self.without is None else (self.without,))}
        return sorted(found)


_BODY_VERSION_FIELDS = ("version", "without", "registry_ids")
_BODY_VERSION_FORM = "write body_version: headers.schema-version, or {registry_ids: {1: 100001}}"


def version_of(value: Any) -> int:
    """Return the number of a version that is written as 2, "2" or "v2"."""
    if isinstance(value, str) and (found := _NUMBER.fullmatch(value)) is not None:
        return int(found[1])
    return count(value)


def _body_version(value: Any) -> BodyVersionOption:
    if isinstance(value, BodyVersionOption):
        return value
    if not isinstance(value, Mapping):
        fixed = not isinstance(value, str) or _NUMBER.fullmatch(value)
        return (
            BodyVersionOption(without=version_of(value)) if fixed else BodyVersionOption(_expression(value))
        )
    unknown = [str(name) for name in value if name not in _BODY_VERSION_FIELDS]
    if unknown:
        raise WrongValue(
            f"has the unknown name {unknown[0][:80]!r}", f"known here: {', '.join(_BODY_VERSION_FIELDS)}"
        )
    if ("version" in value) == ("registry_ids" in value):
        raise WrongValue(
            "says where bodies have their version by either `version` or `registry_ids`", _BODY_VERSION_FORM
        )
    without = version_of(value["without"]) if "without" in value else None
    if "version" in value:
        return BodyVersionOption(_expression(value["version"]), without)
    return BodyVersionOption(None, without, _registry_ids(value["registry_ids"]))


def _expression(value: Any) -> str:
    found = text(value)
    try:
        compile_expression(found)
    except ValueError as error:
        raise WrongValue(f"cannot be used: {error}", _BODY_VERSION_FORM) from None
    return found


def _registry_ids(value: Any) -> dict[int | str, int]:
    if not isinstance(value, Mapping) or not value:
        raise WrongValue(
            "`registry_ids` should be a mapping of versions to a registry's ids",
            "write {1: 100001, 2: [100007, 100009]}",
        )
    found: dict[int | str, int] = {}
    for key, ids in value.items():
        for each in ids if isinstance(ids, list | tuple) else [ids]:
            known = _registry_id(each)
            if known in found:
                raise WrongValue(f"the registry's id {known} stands there twice", "keep one")
            found[known] = version_of(key)
    return found


def _registry_id(value: Any) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32:
        return value
    try:
        return str(UUID(value))
    except (ValueError, AttributeError, TypeError):
        raise WrongValue(
            f"{str(value)[:80]!r} is not the id of a registry's schema",
            "write its number, or the GUID that the registry shows",
        ) from None


_REGISTERED = {
    "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": f"^{_NUMBER.pattern}$"}]
}
_ID = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "format": "uuid"}]}
BodyVersionField = Annotated[
    BodyVersionOption,
    PlainValidator(_body_version),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "integer", "minimum": 1},
                {
                    "type": "object",
                    "properties": {
                        "version": {
                            "type": "string",
                            "description": "The expression of a message's version.",
                            "examples": ["headers.schema-version", "body.version"],
                        },
                        "without": {
                            **_REGISTERED,
                            "description": "The version of messages that name none. Default: they are refused.",
                        },
                        "registry_ids": {
                            "type": "object",
                            "patternProperties": {
                                f"^{_NUMBER.pattern}$": {"anyOf": [_ID, {"type": "array", "items": _ID}]}
                            },
                            "additionalProperties": False,
                            "description": "The ids that a schema registry's clients write before bodies, by version.",
                            "examples": [{"1": 100001, "2": [100007, 100009]}],
                        },
                    },
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
