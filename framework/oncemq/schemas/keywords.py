"""Keywords of JSON Schema: which may refuse a value, where references lead, and what a schema misuses."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

Schema = Any
"""A schema as JSON holds it: a mapping, or true or false."""

TYPES: Final = ("null", "boolean", "number", "string", "array", "object")
"""Types of values; an integer is a number."""

JUDGED: Final = frozenset(
    {
        *("$ref", "type", "enum", "const", "anyOf", "oneOf"),
        *("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
        *("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"),
        *("minLength", "maxLength", "pattern", "format"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    }
)
"""Their effect is known to the judge."""

OTHERS: Final = frozenset(
    {
        *("allOf", "not", "if", "then", "else", "$dynamicRef", "$recursiveRef"),
        *("patternProperties", "propertyNames", "unevaluatedProperties"),
        *("dependencies", "dependentRequired", "dependentSchemas"),
        *("contains", "minContains", "maxContains", "unevaluatedItems"),
    }
)
"""They may refuse a value, too; every other name only describes, as JSON Schema says."""

DEEPEST: Final = 50
"""Schemas inside each other."""

DRAFTS: Final = ("draft-07", "draft-06", "2019-09", "2020-12")
_SCHEMAS_BY_NAME: Final = ("properties", "patternProperties", "$defs", "definitions")
_SCHEMAS: Final = ("additionalProperties", "items", "additionalItems", "contains", "not", "propertyNames")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


class Unjudged(Exception):
    """A schema cannot be taken apart, and why: a reference that leads elsewhere, or keywords beside each other."""


def constraints(schema: Mapping[str, Any]) -> set[str]:
    """Return the keywords that may refuse a value."""
    return {name for name in schema if name in JUDGED or name in OTHERS}


def resolved(schema: Schema, root: Schema) -> Schema:
    """Return the schema that a reference, or `allOf` with a single schema, means within `root`.

    Raises:
        Unjudged: it is not there, leads in a circle, or has other keywords beside it.
    """
    seen = set[str]()
    while isinstance(schema, Mapping):
        if constraints(schema) == {"allOf"} and len(schema["allOf"]) == 1:
            schema = schema["allOf"][0]
            continue
        if "$ref" not in schema:
            break
        reference = str(schema["$ref"])
        if reference in seen:
            raise Unjudged(f"$ref {reference!r} refers to itself")
        if constraints(schema) != {"$ref"}:
            raise Unjudged(f"$ref {reference!r} has other keywords beside it")
        seen.add(reference)
        schema = _pointed(reference, root)
    return schema


def _pointed(reference: str, root: Schema) -> Schema:
    if reference != "#" and not reference.startswith("#/"):
        raise Unjudged(f"$ref {reference!r} leads out of the schema")
    found = root
    for step in reference.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or name not in found:
            raise Unjudged(f"$ref {reference!r} leads nowhere")
        found = found[name]
    return found


def type_of(value: Any) -> str:
    """Return the type of a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def identical(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal: 1 and 1.0 are, 1 and true are not."""
    if type_of(left) != type_of(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(identical, left, right))
    if isinstance(left, Mapping):
        return left.keys() == right.keys() and all(identical(left[name], right[name]) for name in left)
    return bool(left == right)


def shown(value: Any) -> str:
    """Return a value as JSON writes it, shortened."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:59]}…"


def misuses(schema: Schema, path: str = "", depth: int = 0) -> Iterator[str]:
    """Yield what is wrong with a schema: a keyword with a value that it cannot have, and where."""
    place = f" at {path}" if path else ""
    if depth > DEEPEST:
        yield f"nested more than {DEEPEST} schemas deep"
    elif isinstance(schema, Mapping):
        wrong = [*_wrong_shape(schema), *_wrong_numbers(schema)]
        yield from (f"{text}{place}" for text in wrong)
        for below, child in () if wrong else _children(schema):
            yield from misuses(child, f"{path}/{below}", depth + 1)
    elif not isinstance(schema, bool):
        yield f"a schema is an object, true or false, not {shown(schema)}{place}"


def _children(schema: Mapping[str, Any]) -> Iterator[tuple[str, Schema]]:
    for name in _SCHEMAS_BY_NAME:
        for key, child in schema.get(name, {}).items():
            yield f"{name}/{key}", child
    for name in (*_LISTS, *_SCHEMAS):
        found = schema.get(name, [])
        if isinstance(found, list):
            yield from ((f"{name}/{number}", child) for number, child in enumerate(found))
        else:
            yield name, found


def _wrong_shape(schema: Mapping[str, Any]) -> Iterator[str]:
    types = schema.get("type", [])
    for name in types if isinstance(types, list) else [types]:
        if name not in (*TYPES, "integer"):
            yield f"there is no type {shown(name)}: write {', '.join((*TYPES, 'integer'))}"
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        yield "`required` is a list of field names, beside `properties`"
    for names, kind, words in (
        (("enum",), list, "a list of values"),
        (_LISTS, list, "a list of schemas"),
        (_SCHEMAS_BY_NAME, dict, "an object of schemas"),
        (("pattern", "format", "$ref"), str, "text"),
    ):
        yield from (
            f"`{name}` is {words}" for name in names if not isinstance(schema.get(name, kind()), kind)
        )


def _wrong_numbers(schema: Mapping[str, Any]) -> Iterator[str]:
    for name in (*_COUNTS, *_NUMBERS):
        value = schema.get(name, 1)
        if type_of(value) != "number":
            yield f"`{name}` is a number, not {shown(value)}"
        elif name in _COUNTS and (value < 0 or value != int(value)):
            yield f"`{name}` is a whole number from 0, not {shown(value)}"
        elif name == "multipleOf" and value <= 0:
            yield "`multipleOf` is above 0"
