"""Fields below `schemas:`, and its short form: a folder."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema

from oncemq.config.model.fields import VARIABLE, Folder, WrongValue, one_of, text
from oncemq.config.model.section import Section
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
