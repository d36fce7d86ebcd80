"""JSON Schema of an app's YAML, for editors: completion, descriptions and validation."""

from collections.abc import Iterable
from typing import Any

from oncemq.config.build.catalog import Catalog
from oncemq.config.model.app_model import AppModel
from oncemq.errors import MissingExtra

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def app_schema(catalog: Catalog | None = None) -> dict[str, Any]:
    """Return the schema of a whole app as a JSON-compatible value, with the installed strategies' names."""
    schema = AppModel.model_json_schema(by_alias=True)
    definitions = schema["$defs"]
    chain = _chain(_described(catalog or Catalog()))
    for name in ("Consumer", "Topic", "Defaults", "Route"):
        field = definitions[name]["properties"]["strategies"]
        described = {key: field[key] for key in ("description", "examples") if key in field}
        definitions[name]["properties"]["strategies"] = {**chain, **described}
    _tidy(schema)
    return {
        "$schema": DRAFT,
        "title": "OnceMQ app",
        **{key: value for key, value in schema.items() if key != "title"},
    }


def _described(catalog: Catalog) -> Iterable[tuple[str, str]]:
    for name in catalog.strategies.names():
        try:
            text = catalog.strategies.get(name).__doc__ or ""
        except (MissingExtra, ImportError, AttributeError):
            text = ""
        yield name, text.strip().partition("\n")[0]


def _chain(strategies: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Suggest names without enforcing them: an app may bring strategies that are not installed here."""
    known = list(strategies)
    names = [{"const": name, "description": text} for name, text in known]
    with_options = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "properties": {name: {"type": ["object", "null"], "description": text} for name, text in known},
    }
    entry = {"anyOf": [*names, {"type": "string", "minLength": 1}, with_options]}
    return {"type": "array", "minItems": 1, "items": entry}


def _tidy(node: Any) -> None:
    """Remove what pydantic adds for programs and does not help a reader."""
    if isinstance(node, dict):
        if isinstance(node.get("title"), str):
            node.pop("title")
        if node.get("default", "") is None:
            node.pop("default")
        for child in list(node.values()):
            _tidy(child)
    elif isinstance(node, list):
        for child in node:
            _tidy(child)
