"""JSON Schema of payload types as AsyncAPI reads it: draft 7, with shared definitions below `components`."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from oncemq.schemas.registry import described

COMPONENTS: Final = "#/components/schemas/"
_MODE: Final[JsonSchemaMode] = "validation"
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose values are schemas by name."""
_LISTED: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
"""Keywords whose values are lists of schemas."""
_SINGLE: Final = frozenset(
    {
        "additionalProperties",
        "additionalItems",
        "propertyNames",
        "contains",
        "items",
        "not",
        "if",
        "then",
        "else",
    }
)
"""Keywords whose values are a schema."""


class PayloadSchemas:
    """The schemas of an app's payload types.

    Args:
        types: all of them; those that have no JSON Schema are in `without`.
    """

    def __init__(self, types: Sequence[Any]) -> None:
        self.without: list[Any] = []
        adapters: list[tuple[int, JsonSchemaMode, TypeAdapter[Any]]] = []
        for number, kind in enumerate(types):
            try:
                adapters.append((number, _MODE, described(kind)))
            except ValueError:
                self.without.append(kind)
        found, shared = TypeAdapter.json_schemas(adapters, ref_template=f"{COMPONENTS}{{model}}")
        self._types = types
        self._schemas = {number: draft_07(schema) for (number, _), schema in found.items()}
        self.components: Mapping[str, Any] = {
            name: draft_07(schema) for name, schema in sorted(shared.get("$defs", {}).items())
        }

    def of(self, kind: Any) -> dict[str, Any] | None:
        """Return the schema of one of the types; None if it has none."""
        number = next(at for at, other in enumerate(self._types) if other is kind or other == kind)
        found: dict[str, Any] | None = self._schemas.get(number)
        return found


def draft_07(node: Any) -> Any:
    """Return a schema of draft 2020-12, as pydantic writes it, in draft 7, as AsyncAPI reads it.

    Differences are tuples (`prefixItems`), keywords beside a `$ref`, which draft 7 ignores, and OpenAPI's mapping of a
    `discriminator`, where AsyncAPI has the name of a field alone.
    """
    if not isinstance(node, dict):
        return node
    found = {key: _child(key, value) for key, value in node.items() if key != "$schema"}
    if isinstance(found.get("discriminator"), dict):
        found["discriminator"] = found["discriminator"].get("propertyName")
    if "prefixItems" in found:
        rest = found.pop("items", None)
        found["items"] = found.pop("prefixItems")
        if rest is not None:
            found["additionalItems"] = rest
    if "$ref" in found and len(found) > 1:
        found["allOf"] = [{"$ref": found.pop("$ref")}, *found.pop("allOf", [])]
    return found


def _child(key: str, value: Any) -> Any:
    if key in _NAMED and isinstance(value, dict):
        return {name: draft_07(schema) for name, schema in value.items()}
    if key in _LISTED and isinstance(value, list):
        return [draft_07(schema) for schema in value]
    return draft_07(value) if key in _SINGLE else value
