"""Field `accepts:` of a consumer: versions of payloads that its handler takes, and functions for older ones."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import PlainValidator, WithJsonSchema

from oncemq.config.model.fields import WrongValue, reference, text
from oncemq.config.model.schemas_section import version_of
from oncemq.message.expressions import compile_expression

_FIELDS: Final = ("version", "versions", "without", "upcasters")
_NUMBER: Final = re.compile(r"v?([1-9][0-9]{0,8})")
_EXAMPLE: Final = (
    "write accepts: {version: headers.schema-version, versions: [1, 2], upcasters: {1: upcasters:to_v2}}"
)


@dataclass(frozen=True, slots=True)
class AcceptsOption:
    """Versions of payloads that a consumer takes.

    Args:
        version: the expression of a message's version; None = the topic's `body_version` says it.
        versions: those that are taken, the lowest first; the handler gets the last one.
        without: the version of messages that name none; None = these are refused.
        upcasters: `module:name`, or the function itself, which makes a body of the next version, by the version it takes.
    """

    version: str | None
    versions: tuple[int, ...]
    without: int | None
    upcasters: Mapping[int, Any]


def _accepts(value: Any) -> AcceptsOption:
    if isinstance(value, AcceptsOption):
        return value
    if not isinstance(value, Mapping):
        raise WrongValue("should be a mapping", _EXAMPLE)
    unknown = [str(name) for name in value if name not in _FIELDS]
    if unknown:
        raise WrongValue(f"has the unknown name {unknown[0][:80]!r}", f"known here: {', '.join(_FIELDS)}")
    version = _expression(value["version"]) if "version" in value else None
    versions = value.get("versions")
    if not isinstance(versions, list | tuple) or not versions:
        raise WrongValue("names no versions", "add versions: [1, 2]")
    taken = sorted({version_of(each) for each in versions})
    upcasters = value.get("upcasters", {})
    if not isinstance(upcasters, Mapping):
        raise WrongValue("`upcasters` should be a mapping of versions to functions", _EXAMPLE)
    by_version = {version_of(each): reference(function) for each, function in upcasters.items()}
    _require_chain(taken, by_version)
    without = version_of(value["without"]) if "without" in value else None
    if without is not None and without not in taken:
        raise WrongValue(
            f"version {without} of messages that name none is not accepted", f"add {without} to versions"
        )
    return AcceptsOption(version, tuple(taken), without, by_version)


def _expression(value: Any) -> str:
    version = text(value)
    try:
        compile_expression(version)
    except ValueError as error:
        raise WrongValue(
            f"`version` cannot be used: {error}", "write one like headers.schema-version"
        ) from None
    return version


def _require_chain(taken: list[int], upcasters: Mapping[int, Any]) -> None:
    missing = [each for each in range(taken[0], taken[-1]) if each not in upcasters]
    if missing:
        raise WrongValue(
            f"accepts version {taken[0]}, and has no function that makes version {missing[0] + 1} of version {missing[0]}",
            f"add upcasters: {{{missing[0]}: module:function}}",
        )
    never = [each for each in upcasters if not taken[0] <= each < taken[-1]]
    if never:
        raise WrongValue(
            f"has an upcaster of version {never[0]}, which would never run",
            f"leave it out: versions {taken[0]} to {taken[-1]} are accepted, and the handler takes {taken[-1]}",
        )


_VERSION: Final = {
    "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": f"^{_NUMBER.pattern}$"}]
}
AcceptsField = Annotated[
    AcceptsOption,
    PlainValidator(_accepts),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "version": {
                    "type": "string",
                    "description": "The expression of a message's version. Default: the topic's `body_version` says it.",
                    "examples": ["headers.schema-version", "body.version"],
                },
                "versions": {
                    "type": "array",
                    "items": _VERSION,
                    "minItems": 1,
                    "description": "The versions that are accepted; the handler gets bodies of the highest.",
                    "examples": [[1, 2]],
                },
                "without": {
                    **_VERSION,
                    "description": "The version of messages that name none. Default: they are refused.",
                },
                "upcasters": {
                    "type": "object",
                    "patternProperties": {f"^{_NUMBER.pattern}$": {"type": "string"}},
                    "additionalProperties": False,
                    "description": "Functions that make a body of the next version, by the version that they take.",
                    "examples": [{"1": "upcasters:to_v2"}],
                },
            },
            "required": ["versions"],
            "additionalProperties": False,
        }
    ),
]
