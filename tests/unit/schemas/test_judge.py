"""The judge says whether every body of one schema is accepted by another one, in words, and what it cannot judge."""

from typing import Any

import pytest

from oncemq.schemas.judge import Judge

TEXT, WHOLE, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}


def fields(closed: bool = False, required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """Return an object schema; an open one unless `closed`."""
    found: dict[str, Any] = {"type": "object", "properties": properties, "required": list(required)}
    return found | ({"additionalProperties": False} if closed else {})


def said(writer: Any, reader: Any, *, undeclared: bool = True) -> list[str]:
    """Return the differences as text."""
    return [str(each) for each in Judge(writer, reader, ("v1", "v2"), undeclared=undeclared).differences()]


ACCEPTED = {
    "the same": (fields(a=TEXT), fields(a=TEXT)),
    "an optional field more, both closed": (fields(closed=True, a=TEXT), fields(closed=True, a=TEXT, b=TEXT)),
    "a field of any value more": (fields(a=TEXT), fields(a=TEXT, b={})),
    "a field less of an open one": (fields(a=TEXT, b=TEXT), fields(a=TEXT)),
    "a required field becomes optional": (fields(required=("a",), a=TEXT), fields(a=TEXT)),
    "closed becomes open": (fields(closed=True, a=TEXT), fields(a=TEXT)),
    "an integer becomes a number": (fields(a=WHOLE), fields(a=NUMBER)),
    "a type more": (fields(a=TEXT), fields(a={"type": ["string", "null"]})),
    "a value more": (fields(a={"enum": ["x"]}), fields(a={"enum": ["x", "y"]})),
    "a list of values becomes a type": (
        fields(a={"enum": ["x", None]}),
        fields(a={"type": ["string", "null"]}),
    ),
    "a constant within bounds": ({"const": 5}, {"type": "integer", "maximum": 5}),
    "a looser bound": ({"type": "integer", "minimum": 1}, {"type": "integer", "exclusiveMinimum": 0}),
    "a shorter least length": ({"type": "string", "minLength": 3}, {"type": "string", "minLength": 2}),
    "a multiple of a multiple": (
        {"type": "number", "multipleOf": 0.5},
        {"type": "number", "multipleOf": 0.25},
    ),
    "items of a wider type": ({"type": "array", "items": WHOLE}, {"type": "array", "items": NUMBER}),
    "a tuple becomes a list": (
        {"type": "array", "prefixItems": [WHOLE, WHOLE], "items": False},
        {"type": "array", "items": NUMBER},
    ),
    "tuples of both drafts": (
        {"type": "array", "items": [WHOLE], "additionalItems": TEXT},
        {"type": "array", "prefixItems": [NUMBER], "items": TEXT},
    ),
    "one of two alternatives": (fields(a=TEXT), {"anyOf": [WHOLE, fields(a=TEXT)]}),
    "an alternative more": (
        {"oneOf": [fields(required=("k",), k={"const": "a"})]},
        {"oneOf": [fields(required=("k",), k={"const": "a"}), fields(required=("k",), k={"const": "b"})]},
    ),
    "nothing is written": (False, TEXT),
    "everything is read": (TEXT, True),
    "a description": (
        TEXT,
        TEXT | {"title": "t", "description": "d", "default": "", "x-own": 1, "unknown": 2},
    ),
    "an unjudged keyword that stays": ({"not": TEXT}, {"not": TEXT}),
    "a field whose name is a keyword": (
        fields(required=("not",), **{"not": WHOLE}),
        fields(**{"not": NUMBER}),
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_accepts_every_body_is_compatible(name: str) -> None:
    """The reader takes each body that the writer's schema allows."""
    assert said(*ACCEPTED[name]) == []


REFUSED = {
    "a required field more": (
        fields(a=TEXT),
        fields(required=("b",), a=TEXT, b=TEXT),
        ["b: v2 requires it, v1 does not"],
    ),
    "an optional field more in an open one": (
        fields(a=TEXT),
        fields(a=TEXT, b=WHOLE),
        ["b: v1 allows fields that it does not declare, so this may be anything; v2 accepts only integer"],
    ),
    "a field less in a closed one": (
        fields(closed=True, a=TEXT, b=TEXT),
        fields(closed=True, a=TEXT),
        ["b: v1 allows it, v2 accepts none"],
    ),
    "open becomes closed": (
        fields(a=TEXT),
        fields(closed=True, a=TEXT),
        ["v1 allows fields that it does not declare, v2 accepts no others"],
    ),
    "another type, deep inside": (
        fields(lines={"type": "array", "items": fields(amount=NUMBER)}),
        fields(lines={"type": "array", "items": fields(amount=WHOLE)}),
        ["lines[].amount: v1 allows number, v2 accepts only integer"],
    ),
    "a value less": (
        {"enum": ["a", "b", 1]},
        {"enum": ["a"]},
        ["v1 allows integer, v2 accepts only string", 'v1 allows "b", v2 accepts only "a"'],
    ),
    "a list of values for a type": (
        TEXT,
        {"type": "string", "enum": ["a"]},
        ['v1 allows any string, v2 accepts only "a"'],
    ),
    "a listed value that another keyword refuses": (
        {"enum": ["", "a"]},
        {"enum": ["", "a"], "minLength": 1},
        ['v1 allows "", v2 does not accept it'],
    ),
    "null no longer": (
        {"type": ["string", "null"]},
        TEXT,
        ["v1 allows null, v2 accepts only string"],
    ),
    "true is not 1": ({"const": True}, {"enum": [1]}, ["v1 allows boolean, v2 accepts only integer"]),
    "bounds": (
        WHOLE | {"maximum": 10},
        WHOLE | {"minimum": 1, "maximum": 9},
        ["v2 accepts at least 1, v1 allows any", "v2 accepts at most 9, v1 allows 10"],
    ),
    "an excluded bound": (
        NUMBER | {"minimum": 0},
        NUMBER | {"exclusiveMinimum": 0},
        ["v2 accepts at least 0 (itself excluded), v1 allows 0"],
    ),
    "lengths": (
        TEXT | {"maxLength": 5},
        TEXT | {"minLength": 1, "maxLength": 4},
        ["v2 accepts 1 characters or more, v1 allows 0", "v2 accepts 4 characters at most, v1 allows 5"],
    ),
    "a pattern": (TEXT, TEXT | {"pattern": "^a"}, ['v2 accepts only the pattern "^a", v1 any text']),
    "multiples": (NUMBER, NUMBER | {"multipleOf": 2}, ["v2 accepts multiples of 2, v1 allows any number"]),
    "items twice": (
        {"type": "array"},
        {"type": "array", "uniqueItems": True},
        ["v2 accepts no item twice, v1 allows that"],
    ),
    "anything": ({}, TEXT, ["v1 allows any value, v2 accepts only string"]),
    "keys of a dictionary": (
        {"type": "object", "additionalProperties": TEXT},
        {"type": "object", "additionalProperties": WHOLE},
        ["*: v1 allows string, v2 accepts only integer"],
    ),
    "an alternative less": (
        {"oneOf": [fields(required=("k",), k={"const": "a"}), fields(required=("k",), k={"const": "b"})]},
        {"oneOf": [fields(required=("k",), k={"const": "a"})]},
        ["v2 has no alternative for this object of v1"],
    ),
    "a field without the default that readers would not fill in": (
        fields(closed=True, a=TEXT),
        fields(closed=True, required=("b",), a=TEXT, b=TEXT | {"default": "x"}),
        ["b: v2 requires it, v1 does not"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_refuses_a_body_is_said_in_words(name: str) -> None:
    """Each reason names the field, and what both versions say about it."""
    writer, reader, texts = REFUSED[name]
    assert said(writer, reader) == texts


UNJUDGED = {
    "a keyword": (TEXT, {"allOf": [TEXT, {"minLength": 1}]}, "`allOf` in v2"),
    "a keyword in an alternative": (TEXT, {"anyOf": [{"allOf": [TEXT, WHOLE]}]}, "`allOf` in v2"),
    "a keyword of the writer": ({"not": TEXT}, WHOLE, "`not` in v1"),
    "a reference elsewhere": (
        fields(a=TEXT),
        fields(a={"$ref": "https://example.org/a.json"}),
        "a: cannot be judged: $ref 'https://example.org/a.json' leads out of the schema",
    ),
    "a reference to nothing": (TEXT, {"$ref": "#/$defs/x"}, "$ref '#/$defs/x' leads nowhere"),
    "another pattern": (TEXT | {"pattern": "a"}, TEXT | {"pattern": "b"}, 'whether all texts of pattern "a"'),
    "alternatives that overlap": (
        TEXT,
        {"oneOf": [TEXT, TEXT]},
        "`oneOf` has alternatives that may accept the same",
    ),
    "alternatives that share the work": (
        fields(a={"type": ["string", "integer"]}),
        {"anyOf": [fields(a=TEXT), fields(a=WHOLE)]},
        "none of the 2 alternatives of v2 accepts every object of v1 by itself",
    ),
}


@pytest.mark.parametrize("name", UNJUDGED)
def test_what_cannot_be_judged_is_said_and_not_guessed(name: str) -> None:
    """The reason names the keyword or the reference."""
    writer, reader, text = UNJUDGED[name]
    (found,) = said(writer, reader)
    assert "cannot be judged: " in found
    assert text in found


def test_a_reason_that_another_keyword_may_exclude_is_not_certain() -> None:
    """A writer's keyword that is not understood may forbid what seems to break."""
    (found,) = said(WHOLE | {"not": {"const": 1}}, TEXT)
    assert found == "cannot be judged: v1 allows integer, v2 accepts only string, unless `not` excludes that"


def test_undeclared_fields_may_be_ruled_out() -> None:
    """Where producers send what they declare and nothing else, an optional field may be added; a dictionary stays open."""
    assert said(fields(a=TEXT), fields(a=TEXT, b=WHOLE), undeclared=False) == []
    assert said(fields(a=TEXT, b=WHOLE), fields(a=TEXT), undeclared=False) == []
    assert said(fields(a=TEXT), fields(closed=True, a=TEXT), undeclared=False) == []
    assert said({"type": "object"}, {"type": "object", "additionalProperties": WHOLE}, undeclared=False) == [
        "*: v1 allows any value, v2 accepts only integer"
    ]


def test_references_within_a_schema_are_followed() -> None:
    """Also where a type contains itself, and where only the definition differs."""

    def tree(value: Any) -> dict[str, Any]:
        node = fields(value=value, next={"$ref": "#/$defs/node"})
        return {"$ref": "#/$defs/node", "$defs": {"node": node}}

    assert said(tree(WHOLE), tree(NUMBER)) == []
    assert said(tree(NUMBER), tree(WHOLE)) == ["value: v1 allows number, v2 accepts only integer"]


def test_a_schema_that_refers_to_itself_only_is_no_endless_loop() -> None:
    """It is said that it cannot be judged."""
    loop = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    (found,) = said(TEXT, loop)
    assert "refers to itself" in found


def test_a_schema_of_many_references_is_compared_in_little_time() -> None:
    """Thirty definitions, each with two references to the next one, are a billion paths and sixty comparisons."""
    definitions: dict[str, Any] = {
        f"d{at}": fields(left={"$ref": f"#/$defs/d{at + 1}"}, right={"$ref": f"#/$defs/d{at + 1}"})
        for at in range(30)
    }
    old = {"$ref": "#/$defs/d0", "$defs": definitions | {"d30": WHOLE}}
    new = {"$ref": "#/$defs/d0", "$defs": definitions | {"d30": NUMBER}}
    assert said(old, new) == []
