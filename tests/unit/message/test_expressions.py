"""Expressions over a message."""

import timeit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.message.envelope import Message
from oncemq.message.expressions import compile_expression, split_list

BODY = {
    "order_id": "o-1",
    "a-b": 1,
    "lines": [{"id": 7}, {"id": 8}],
    "text": "abc",
    "none": None,
    "order id": 3,
}
MESSAGE = Message(
    "orders", b"", "id-1", {"tenant": "acme", "X-Tenant-Id": "9", "x": "lower", "X": "upper"}, ("k0", "k1")
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("body", BODY),
        ("body.order_id", "o-1"),
        (" body.order_id ", "o-1"),
        ("body.a-b", 1),
        ("body.lines[0].id", 7),
        ("body.lines[-1].id", 8),
        ("headers.tenant", "acme"),
        ("headers.x-tenant-id", "9"),
        ("headers.X", "upper"),
        ("headers.x", "lower"),
        ("keys[0]", "k0"),
        ("keys[-1]", "k1"),
        ("keys", ["k0", "k1"]),
        ("message_id", "id-1"),
        ("topic", "orders"),
        ('body."order id"', 3),
        ("body.lines[?id == `8`].id | [0]", 8),
        ("headers.absent || keys[1]", "k1"),
        ("join('-', [topic, message_id])", "orders-id-1"),
        ("body.lines[].id | max(@)", 8),
        ("sort_by(body.lines, &id)[0].id", 7),
    ],
)
def test_a_value_is_found(text: str, value) -> None:
    """Plain paths and JMESPath see body, headers, keys, message id and topic."""
    assert compile_expression(text)(MESSAGE, BODY) == value


@pytest.mark.parametrize(
    "text",
    [
        "body.nothing",
        "body.nothing.deeper",
        "body[0]",
        "body.text[0]",
        "body.text.upper",
        "body.none.x",
        "body.lines.id",
        "body.lines[2].id",
        "body.lines[-3]",
        "body.lines[999999999]",
        "headers.nothing",
        "headers.tenant.x",
        "headers[0]",
        "keys[2]",
        "keys.x",
        "message_id.x",
        "topic[0]",
        "max(body.text)",
        "sum(body.lines)",
        "length(body.none)",
    ],
)
def test_what_is_not_there_is_none(text: str) -> None:
    """A missing field, position or header, and a value of another type, are None and never an error."""
    assert compile_expression(text)(MESSAGE, BODY) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["is empty"]),
        ("bdy.order_id", ["'bdy'", "did you mean 'body'?"]),
        ("header.x", ["did you mean 'headers'?"]),
        ("order_id", ["body.order_id"]),
        ("key", ["did you mean 'keys'?"]),
        ("bdy.x || 'a'", ["did you mean 'body'?"]),
        ("length(bdy)", ["did you mean 'body'?"]),
        ("{a: bdy}", ["did you mean 'body'?"]),
        ("body.lines[?id == `8`] | [bdy.x", ["is not an expression"]),
        ("body..x", ["is not an expression", "character 6"]),
        ("body.", ["is not an expression"]),
        ("body[", ["is not an expression"]),
        ("body.#", ["is not an expression"]),
        ("lenght(body)", ["unknown function 'lenght'", "did you mean 'length'?"]),
        ("length(body, topic)", ["length() 2 arguments, it takes 1"]),
        ("body.x || lenght(body)", ["did you mean 'length'?"]),
        ("(" * 2000, ["is not an expression"]),
        ("body[" + "9" * 5000 + "]", ["is not an expression"]),
    ],
    ids=lambda value: str(value)[:25],
)
def test_a_wrong_expression_is_refused_at_start(text: str, words: list[str]) -> None:
    """Syntax errors, unknown roots and unknown functions are a ValueError that says what was meant."""
    with pytest.raises(ValueError) as refusal:
        compile_expression(text)
    for word in words:
        assert word in str(refusal.value)


@pytest.mark.parametrize(
    "text",
    [
        "body.lines[?sku == 'a'].n",
        "body.* | [0]",
        "body.lines[*].price",
        "sort_by(body.x, &weight)",
        "'text'",
        "@",
    ],
)
def test_names_inside_the_body_are_not_taken_for_roots(text: str) -> None:
    """Only what is looked up in the message itself has to be known."""
    compile_expression(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_no_body_makes_an_expression_fail(body) -> None:
    """Any decoded body gives a value or None."""
    for text in (
        "body.a.b",
        "body[0]",
        "max_by(body, &a)",
        "to_number(body)",
        "sum(body)",
        "body[?a > `1`]",
        "body.lines[0].id",
    ):
        compile_expression(text)(MESSAGE, body)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("body.a", ["body.a"]),
        ("[body.a, body.b]", ["body.a", "body.b"]),
        ("[join(',', [keys[0], topic]), body.b]", ["join(',', [keys[0], topic])", "body.b"]),
        ("[body.\"a,b\", '],']", ['body."a,b"', "'],'"]),
    ],
)
def test_a_list_is_split_at_its_own_commas(text: str, parts: list[str]) -> None:
    """Commas inside brackets and quotes belong to a part."""
    assert split_list(text) == parts


def test_a_plain_path_costs_next_to_nothing() -> None:
    """One field of the body takes no more than 0.3 µs, with room for a busy machine."""
    find = compile_expression("body.order_id")
    seconds = min(timeit.repeat(lambda: find(MESSAGE, BODY), number=10_000, repeat=7)) / 10_000
    assert seconds < 1.0e-6


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("body.x[0:2]", [1, 2]),
        ("body.x[::-1]", [3, 2, 1]),
        ("keys[:1] | [0]", "a"),
        ("[0:2]", None),
        ("body.x[0:1:0]", None),
    ],
)
def test_slices_are_expressions_too(text, found):
    """A part of a list can be named, and a slice that cannot be finds nothing."""
    message = Message("orders", b"", None, {}, ("a", "b"))
    assert compile_expression(text)(message, {"x": [1, 2, 3]}) == found
