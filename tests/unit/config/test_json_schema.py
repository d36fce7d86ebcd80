"""The schema that editors use agrees with what the loader accepts."""

from pathlib import Path

import jsonschema
import pytest

from oncemq.config.json_schema import app_schema
from oncemq.config.model.app_model import AppModel
from oncemq.config.source.tree import plain
from oncemq.config.source.yaml_text import parse_yaml
from support.declared import BASE, CATALOG

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(
    [*ROOT.glob("examples/*/app.yaml"), *ROOT.glob("framework/oncemq/cli/templates/*/app.yaml.txt")]
)


def errors(text: bytes) -> list[str]:
    """Return what the schema says about the text."""
    validator = jsonschema.Draft202012Validator(app_schema(CATALOG))
    return [error.message for error in validator.iter_errors(plain(parse_yaml(text, "app.yaml")))]


def test_it_is_a_valid_schema():
    """The schema itself is right by draft 2020-12."""
    jsonschema.Draft202012Validator.check_schema(app_schema(CATALOG))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_example_is_valid(file):
    """What we ship shows no red line in an editor."""
    assert errors(file.read_bytes()) == []


@pytest.mark.parametrize(
    "more",
    [
        "grace: 30\n",
        "processes: many\n",
        "concurrency: 3\n",
        "http: 80\n",
        "defaults: {retry: {attempts: 0}}\n",
    ],
)
def test_mistakes_are_seen(more):
    """What the loader refuses, an editor marks."""
    assert errors(BASE.encode()) == []
    assert errors((BASE + more).encode())


def test_variables_may_stand_for_numbers_and_durations():
    """`${VAR}` is no red line."""
    assert errors((BASE + "processes: ${N:-4}\ngrace: ${G}\n").encode()) == []


def test_every_field_is_described():
    """Hovering over a name says what it is for."""
    schema = AppModel.model_json_schema()
    models = [schema, *schema["$defs"].values()]
    missing = [
        name
        for model in models
        for name, field in model["properties"].items()
        if not field.get("description")
    ]
    assert missing == []
