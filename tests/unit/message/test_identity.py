"""One spelling for each key, version and identity."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.errors import InvalidKey, MissingKey
from oncemq.message.identity import (
    MAX_IDENTITY_BYTES,
    MAX_KEY_BYTES,
    canonical_key,
    canonical_version,
    join_parts,
)

SOURCE = "key body.order_id of topic 'orders'"
PARTS = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), min_size=1, max_size=4)
TRICKY = st.lists(st.text("a:%235A\\", min_size=1, max_size=5), min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("value", "text"), [(1, "1"), ("1", "1"), (-7, "-7"), (2**70, str(2**70)), ("ö", "ö"), (" a ", " a ")]
)
def test_integers_and_texts_have_one_spelling(value, text: str) -> None:
    """The integer 1 and the text "1" are one key; texts are kept as they are."""
    assert canonical_key(value, SOURCE) == text


def test_a_missing_key_is_refused() -> None:
    """None is MissingKey, and the text names the expression."""
    with pytest.raises(MissingKey, match=r"body\.order_id"):
        canonical_key(None, SOURCE)


@pytest.mark.parametrize(
    "value",
    [
        True,
        False,
        1.0,
        float("nan"),
        "",
        [],
        ["a"],
        {},
        b"a",
        "a\0b",
        "\ud800",
        "a\udfff",
        1 << 20_000,
        10**255,
        "k" * 256,
        "ö" * 128,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_one_spelling_is_refused(value) -> None:
    """Anything else is InvalidKey; the text names the expression and is short."""
    with pytest.raises(InvalidKey, match=r"body\.order_id") as refusal:
        canonical_key(value, SOURCE)
    assert len(str(refusal.value)) < 200


def test_the_longest_key_counts_bytes() -> None:
    """255 bytes of UTF-8 fit, whatever the number of characters."""
    assert canonical_key("k" * MAX_KEY_BYTES, SOURCE)
    assert canonical_key("ö" * (MAX_KEY_BYTES // 2), SOURCE)


@pytest.mark.parametrize(
    ("value", "version"),
    [(0, 0), ("0", 0), ("007", 7), (-1, -1), ("-12", -12), (2**63 - 1, 2**63 - 1), (str(-(2**63)), -(2**63))],
)
def test_versions_are_integers_or_their_digits(value, version: int) -> None:
    """Integers of 64 bits, and decimal text that says the same."""
    assert canonical_version(value, SOURCE) == version


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        1.0,
        "",
        "-",
        "--1",
        "+1",
        " 1",
        "1.0",
        "1e3",
        "0x1",
        "1_0",
        "\u0663",
        "\u00b2",
        2**63,
        -(2**63) - 1,
        str(2**63),
        "9" * 5000,
        [],
        {},
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_version_is_refused(value) -> None:
    """Anything else is InvalidKey, never a ValueError, and the text names the expression."""
    with pytest.raises(InvalidKey, match=r"body\.order_id"):
        canonical_version(value, SOURCE)


@given(PARTS | TRICKY, PARTS | TRICKY)
def test_different_parts_have_different_texts(first: list[str], second: list[str]) -> None:
    """Joining is injective."""
    texts = join_parts(first, SOURCE, max_bytes=10_000), join_parts(second, SOURCE, max_bytes=10_000)
    assert (texts[0] == texts[1]) == (first == second)


@given(TRICKY)
def test_parts_can_be_read_back(parts: list[str]) -> None:
    """Splitting at the colons and undoing the escapes gives the parts: nothing was lost."""
    text = join_parts(parts, SOURCE, max_bytes=10_000)
    assert [part.replace("%3A", ":").replace("%25", "%") for part in text.split(":")] == parts


def test_the_readable_case_is_readable() -> None:
    """Plain parts stand as they are, and one part with a colon is not two parts."""
    assert join_parts(["o-1", "7"], SOURCE) == "o-1:7"
    assert join_parts(["a:b"], SOURCE) == "a%3Ab"
    assert join_parts(["a%3Ab"], SOURCE) == "a%253Ab"


def test_an_identity_too_long_is_refused() -> None:
    """Escapes count: an index has only so much room."""
    with pytest.raises(InvalidKey, match=str(MAX_IDENTITY_BYTES)):
        join_parts([":" * 200], SOURCE)
