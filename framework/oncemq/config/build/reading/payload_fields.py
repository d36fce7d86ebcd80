"""Compares the body fields in `key`, `version` and `identity` with those of the handler's payload type."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from pydantic import TypeAdapter

from oncemq.common.problems import Problem, Severity
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.handler.payload import type_name
from oncemq.message.expressions import split_list

_BODY_PATH: Final = re.compile(r"body((?:\.[A-Za-z_][A-Za-z0-9_-]*)+)")


def check_fields(settled: ConsumerSettings, payload: Any) -> Iterable[Problem]:
    """Yield a problem for each plain path into the body that does not exist in the payload type.

    An error if the type forbids other fields, since such a message can never be handled. Otherwise a body may have more
    fields than its type, so it is a warning, and only if a field of a similar name exists.

    Args:
        settled: the consumer's settings.
        payload: the annotation of the handler's payload; None if any body is valid.
    """
    if payload is None:
        return
    schemas = _schemas(payload)
    if not schemas:
        return
    found = [("key", settled.key), ("version", settled.version or "")]
    found += [("identity", text) for text in settled.identity]
    for where, text in found:
        for part in split_list(text) if text else []:
            match = _BODY_PATH.fullmatch(part)
            if match is None:
                continue
            problem = _problem(part, match[1][1:].split("."), schemas, type_name(payload))
            if problem is not None:
                yield Problem(problem.text, problem.advice, where, problem.severity)


def _schemas(payload: Any) -> list[dict[str, Any]]:
    """Return the schemas of the bodies, by alias and by name; empty if pydantic cannot tell."""
    try:
        adapter = TypeAdapter(payload)
        return [adapter.json_schema(by_alias=by_alias) for by_alias in (True, False)]
    except Exception:  # an exotic type: skipping the check is better than a wrong result
        return []


def _problem(part: str, steps: list[str], schemas: list[dict[str, Any]], name: str) -> Problem | None:
    nodes: list[tuple[dict[str, Any], dict[str, Any]]] = [(schema, schema) for schema in schemas]
    for step in steps:
        objects = [found for node, root in nodes for found in _objects(node, root)]
        if not objects:
            return None
        known = {field for node, _ in objects for field in node.get("properties", {})}
        nodes = [
            (node["properties"][step], root) for node, root in objects if step in node.get("properties", {})
        ]
        if nodes:
            continue
        text = f"{part} names a field that {name} does not have"
        close = get_close_matches(step, sorted(known), n=1, cutoff=0.6)
        hint = f"did you mean {close[0]!r}?" if close else f"its fields are {', '.join(sorted(known))}"
        if all(node.get("additionalProperties") is False for node, _ in objects):
            return Problem(text, hint, "", Severity.ERROR)
        return Problem(text, hint, "", Severity.WARNING) if close else None
    return None


def _objects(node: Mapping[str, Any], root: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the object types that a value may have; empty if it may be anything."""
    if "$ref" in node:
        target: Any = root
        for step in str(node["$ref"]).removeprefix("#/").split("/"):
            target = target.get(step, {})
        return _objects(target, root)
    for union in ("anyOf", "oneOf", "allOf"):
        if union in node:
            return [found for branch in node[union] for found in _objects(branch, root)]
    if node.get("type") == "object" and "properties" in node:
        return [(dict(node), root)]
    return []
