"""The canonical form: equal for equal content, whatever its order, spelling or type."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from oncemq.message.canonical import NotCanonical, canonical, canonical_json, digest, is_canonical

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Money(BaseModel):
    """A model."""

    amount: Decimal
    currency: str


@dataclass
class Plain:
    """The same as a dataclass."""

    currency: str
    amount: float


class Colour(Enum):
    """An enumeration."""

    RED = "red"


SAME = [
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (1, 1.0),
    (1, Decimal("1.00")),
    (1.5, Decimal("1.50")),
    (-0.0, 0),
    (10**30, Decimal("1E+30")),
    ({3, 1, 2}, frozenset([2, 1, 3])),
    ((1, 2), [1, 2]),
    (NOON, NOON.astimezone(timezone(timedelta(hours=2)))),
    (Money(amount=Decimal("5.0"), currency="EUR"), Plain("EUR", 5)),
    (Colour.RED, "red"),
    (UUID(int=1), str(UUID(int=1))),
    ({1: "a"}, {"1": "a"}),
]
OTHER = [
    (1, True),
    (1, "1"),
    (0, None),
    (0, ""),
    ([1, 2], [2, 1]),
    ([[1], 2], [1, [2]]),
    ({"a": None}, {}),
    (b"x", "x"),
    (0.1, Decimal("0.1000000000000000055")),
    (NOON, NOON.replace(tzinfo=None)),
    (date(2026, 1, 1), datetime(2026, 1, 1)),
    (10**40, 10**40 + 1),
    (timedelta(seconds=1), 1_000_000),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_equal_content_is_one_text(one: object, other: object) -> None:
    """Whatever it is written with."""
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_other_content_is_another_text(one: object, other: object) -> None:
    """Nothing is taken for what it is not."""
    assert canonical(one) != canonical(other)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(_JSON)
def test_a_document_is_its_value(value: object) -> None:
    """A body of JSON and the call with the same content are one text."""
    assert canonical_json(json.dumps(value).encode()) == canonical(json.loads(json.dumps(value)))


@given(_JSON, _JSON)
def test_texts_are_equal_only_for_equal_content(one: object, other: object) -> None:
    """As JSON compares: numbers by value, true is no number."""

    def typed(value: object) -> object:
        if isinstance(value, bool):
            return ("bool", value)
        if isinstance(value, dict):
            return {name: typed(part) for name, part in value.items()}
        return [typed(part) for part in value] if isinstance(value, list) else value

    assert (canonical(one) == canonical(other)) == (typed(one) == typed(other))


@pytest.mark.parametrize(
    "body",
    [b"{", b"[" * 100_000, b'{"a": 1, "a": 2}', b"1e99999999999999999999999", b"\xff", b"1" * 5000],
    ids=["cut", "deep", "twice", "large", "bytes", "long"],
)
def test_what_readers_could_understand_differently_has_no_canonical_text(body: bytes) -> None:
    """It is compared byte by byte instead."""
    with pytest.raises(ValueError):
        canonical_json(body)


def test_content_that_nests_too_deeply_is_refused() -> None:
    """In words, and not by a RecursionError."""
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(NotCanonical, match="deeply"):
        canonical(deep)


def test_a_digest_says_its_version_and_fits() -> None:
    """A digest of an earlier version is told from it."""
    made = digest(canonical({"a": 1}))
    assert is_canonical(made)
    assert len(made) <= 64
    assert not is_canonical("ab" * 32)
