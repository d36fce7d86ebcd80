"""Versions are registered once, named by their file or their `$id`, and compared as the level demands."""

from typing import Any

import pytest
from pydantic import BaseModel

from oncemq.schemas.compatibility import Level, compare
from oncemq.schemas.registry import Registered, Registry, described, faults, name_and_version

TEXT, WHOLE = {"type": "string"}, {"type": "integer"}


def test_a_version_is_registered_once() -> None:
    """The second one is refused with both places, also if both schemas are equal; the first one stays."""
    registry = Registry()
    assert registry.register(Registered("order.paid", 2, TEXT, "one.json")) == ""
    assert registry.register(Registered("order.paid", 2, TEXT, "two.json")) == (
        "v2 of 'order.paid' is registered twice: in one.json and in two.json"
    )
    assert [version.place for version in registry.versions("order.paid")] == ["one.json"]


def test_versions_are_in_order() -> None:
    """By number, in whichever order they came; other topics have their own."""
    registry = Registry()
    for number in (10, 2, 1):
        registry.register(Registered("a", number, TEXT, ""))
    registry.register(Registered("b", 2, TEXT, ""))
    assert [version.version for version in registry.versions("a")] == [1, 2, 10]
    assert registry.topics() == ["a", "b"]
    assert registry.versions("c") == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("order.paid.v2.json", ("order.paid", 2)),
        ("https://example.org/schemas/order.paid.v12.yaml", ("order.paid", 12)),
        ("order.paid.v2", ("order.paid", 2)),
        ("order.v1.v3.json", ("order.v1", 3)),
        ("order.paid.json", None),
        ("order.paid.v0.json", None),
        ("order.paid.v02.json", None),
        (".v1.json", None),
    ],
)
def test_names_tell_topic_and_version(text: str, found: tuple[str, int] | None) -> None:
    """Files and `$id`s have the same form."""
    assert name_and_version(text) == found


class Paid(BaseModel):
    """A body."""

    order_id: str
    amount: int | None = None


def test_a_model_makes_its_schema() -> None:
    """A pydantic model has one; a type without any says why."""
    assert described(Paid).json_schema()["required"] == ["order_id"]
    with pytest.raises(ValueError, match="no JSON Schema can be made of it"):
        described(object())


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "objekt"}, 'there is no type "objekt"'),
        ({"required": True}, "`required` is a list of field names"),
        ({"properties": {"a": {"required": "a"}}}, "at /properties/a"),
        ({"properties": []}, "`properties` is an object of schemas"),
        ({"anyOf": [1]}, "a schema is an object, true or false, not 1 at /anyOf/0"),
        ({"minLength": -1}, "`minLength` is a whole number from 0"),
        ({"minimum": "1"}, '`minimum` is a number, not "1"'),
        ({"multipleOf": 0}, "`multipleOf` is above 0"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "write it for draft-07 or newer"),
        ([], "a schema is an object"),
    ],
)
def test_a_wrong_schema_is_refused(schema: Any, text: str) -> None:
    """The fault names the keyword and the place in the schema."""
    (found,) = faults(schema)
    assert text in found


def test_a_schema_nested_without_end_is_refused() -> None:
    """A depth that no message needs is a fault, not an endless loop."""
    schema: Any = {}
    for _ in range(200):
        schema = {"items": schema}
    assert list(faults(schema)) == ["nested more than 50 schemas deep"]


VERSIONS = [
    Registered("t", 1, WHOLE, ""),
    Registered("t", 2, {"type": "number"}, ""),
    Registered("t", 3, {"type": ["number", "string"]}, ""),
]


@pytest.mark.parametrize(
    ("level", "pairs"),
    [
        ("none", set()),
        ("backward", {(1, 2), (2, 3)}),
        ("backward_transitive", {(1, 2), (1, 3), (2, 3)}),
        ("forward", {(2, 1), (3, 2)}),
        ("forward_transitive", {(2, 1), (3, 1), (3, 2)}),
        ("full", {(1, 2), (2, 1), (2, 3), (3, 2)}),
        ("full_transitive", {(1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)}),
    ],
)
def test_a_level_says_who_reads_whom(level: str, pairs: set[tuple[int, int]]) -> None:
    """Backward: newer versions read older bodies; forward: older ones read newer; transitive: not neighbours alone."""
    found = list(compare(VERSIONS, Level(level)))
    assert {(each.writer.version, each.reader.version) for each in found} == pairs
    assert all(each.breaks != each.is_backward for each in found)
