"""Splits a schema into alternatives of one type each, whose values together are those of the schema."""

from collections.abc import Iterator, Mapping
from typing import Any

from oncemq.schemas.keywords import (
    DEEPEST,
    TYPES,
    Schema,
    Unjudged,
    constraints,
    identical,
    resolved,
    type_of,
)


def alternatives(schema: Schema, root: Schema) -> list[dict[str, Any]]:
    """Return schemas with one `type` each; `integer` is one of them, and `const` has become `enum`.

    Keywords whose effect is not known stay in them.

    Args:
        schema: resolved.
        root: where its references lead.

    Raises:
        Unjudged: it cannot be split; says why.
    """
    return list(_split(schema, root, 0))


_FEW: Mapping[str, list[Any]] = {"null": [None], "boolean": [True, False]}
"""The values of types that have few."""


def _split(schema: Schema, root: Schema, depth: int) -> Iterator[dict[str, Any]]:
    if depth > DEEPEST:
        raise Unjudged("`anyOf` is nested too deeply")
    if schema is False:
        return
    if schema is True:
        schema = {}
    union = next((name for name in ("oneOf", "anyOf") if name in schema), None)
    if union is not None:
        yield from _union(schema, union, root, depth)
        return
    listed = _values(schema)
    for kind in _types(schema):
        alternative = {name: value for name, value in schema.items() if name != "const"} | {"type": kind}
        values = _FEW.get(kind) if listed is None else [value for value in listed if _is(value, kind)]
        if values is None:
            yield alternative
            continue
        whole = [value for value in values if _is(value, "integer")] if kind == "number" else []
        others = [value for value in values if value not in whole] if whole else values
        yield from (
            alternative | {"type": part, "enum": own}
            for part, own in (("integer", whole), (kind, others))
            if own
        )


def _union(schema: Mapping[str, Any], name: str, root: Schema, depth: int) -> Iterator[dict[str, Any]]:
    beside = constraints(schema) - {name}
    if beside:
        raise Unjudged(f"`{name}` has `{min(beside)}` beside it")
    branches = [list(_split(resolved(branch, root), root, depth + 1)) for branch in schema[name]]
    for at, lefts in enumerate(branches):
        pairs = ((left, right) for other in branches[at + 1 :] for right in other for left in lefts)
        if name == "oneOf" and not all(exclusive(left, root, right, root) for left, right in pairs):
            raise Unjudged("`oneOf` has alternatives that may accept the same value")
        yield from lefts


def exclusive(left: Mapping[str, Any], root: Schema, right: Mapping[str, Any], other_root: Schema) -> bool:
    """Return whether no value is accepted by both alternatives: by their types, or by a field that tells them apart.

    Args:
        left: one alternative.
        root: where its references lead.
        right: the other one.
        other_root: where the references of the other one lead.
    """
    values, others = left.get("enum"), right.get("enum")
    if values is not None and others is not None:
        return _apart(values, others)
    if left["type"] != right["type"]:
        return {left["type"], right["type"]} != {"integer", "number"}
    if left["type"] != "object":
        return False
    fields, fields_too = left.get("properties", {}), right.get("properties", {})
    needed = {*left.get("required", ()), *right.get("required", ())}
    for name in needed & fields.keys() & fields_too.keys():
        own, more = _listed(fields[name], root), _listed(fields_too[name], other_root)
        if own is not None and more is not None and _apart(own, more):
            return True
    return False


def _listed(schema: Schema, root: Schema) -> list[Any] | None:
    found = resolved(schema, root)
    return _values(found) if isinstance(found, Mapping) else None


def _apart(values: list[Any], others: list[Any]) -> bool:
    return not any(identical(value, other) for value in values for other in others)


def _types(schema: Mapping[str, Any]) -> list[str]:
    declared = schema.get("type", list(TYPES))
    names = [declared] if isinstance(declared, str) else list(declared)
    return [name for name in names if name != "integer" or "number" not in names]


def _values(schema: Mapping[str, Any]) -> list[Any] | None:
    listed = list(schema["enum"]) if "enum" in schema else None
    if "const" not in schema:
        return listed
    own = schema["const"]
    return [own] if listed is None or any(identical(own, value) for value in listed) else []


def _is(value: Any, kind: str) -> bool:
    if kind == "integer":
        return type_of(value) == "number" and value == int(value)
    return type_of(value) == kind
