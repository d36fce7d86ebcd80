"""Payload schemas say what the handlers' types accept, in the draft of JSON Schema that AsyncAPI reads."""

from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft7Validator

from oncemq.asyncapi.document import Description
from oncemq.asyncapi.payloads import draft_07
from unit.asyncapi.conftest import APP

ORDER = {"order_id": "o1", "payment_no": 1, "at": "2026-01-01T00:00:00Z", "email": "a@example.org"}
DOG = {"kind": "dog", "lead": {"sku": "l"}}


def _is_valid(document: dict[str, Any], topic: str, body: Any) -> bool:
    payload = document["components"]["messages"][topic]["payload"]
    return bool(Draft7Validator({**document, **payload}).is_valid(body))


@pytest.mark.parametrize(
    ("topic", "body", "valid"),
    [
        ("order.paid", ORDER, True),
        ("order.paid", ORDER | {"place": [1.5, 2.5]}, True),
        ("order.paid", ORDER | {"place": ["x", 2.5]}, False),
        ("order.paid", ORDER | {"place": [1.5]}, False),
        ("order.paid", ORDER | {"lines": [{"count": 1}]}, False),
        ("order.paid", {key: value for key, value in ORDER.items() if key != "email"}, False),
        ("ride-events", {"status": "created", "passenger": DOG}, True),
        ("ride-events", {"status": "created", "passenger": {"kind": "dog"}}, False),
        ("ride-events", {"status": "created", "passenger": {"kind": "fox"}}, False),
        ("clicks", {"sku": "a"}, True),
        ("clicks", {"sku": "a", "count": 0}, False),
        ("order.shipped", {}, False),
        ("legacy", [], False),
    ],
)
def test_a_payload_schema_judges_as_the_handler_does(
    document: dict[str, Any], topic: str, body: Any, *, valid: bool
) -> None:
    """Bodies that every handler of the topic takes are valid, others are not."""
    assert _is_valid(document, topic, body) is valid


def test_types_of_several_consumers_are_one_message(document: dict[str, Any]) -> None:
    """A topic has one message, whose body must be valid for all who read it."""
    assert document["components"]["messages"]["order.paid"]["payload"] == {
        "allOf": [{"$ref": "#/components/schemas/OrderPaid"}, {"$ref": "#/components/schemas/Receipt"}]
    }


def test_a_type_without_a_json_schema_is_named(describe: Callable[[str], Description]) -> None:
    """Its message has no payload, and the description says which type it was."""
    described = describe(APP)
    assert "payload" not in described.document["components"]["messages"]["fan"]
    (name,) = described.without
    assert "Opaque" in name


def test_keywords_of_the_newer_draft_become_those_of_draft_7() -> None:
    """Tuples, keywords beside a reference, and a discriminator's mapping; a field of such a name stays as it is."""
    assert draft_07({"prefixItems": [{"type": "string"}], "items": False}) == {
        "items": [{"type": "string"}],
        "additionalItems": False,
    }
    assert draft_07({"$ref": "#/x", "description": "d"}) == {
        "description": "d",
        "allOf": [{"$ref": "#/x"}],
    }
    assert draft_07({"discriminator": {"propertyName": "kind", "mapping": {}}}) == {"discriminator": "kind"}
    fields = {"properties": {"prefixItems": {"type": "string"}, "discriminator": {"type": "object"}}}
    assert draft_07(fields) == fields
