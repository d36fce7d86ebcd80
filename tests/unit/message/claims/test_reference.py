"""References to bodies, which anyone may have written."""

import json
from datetime import date

import pytest

from oncemq.errors import ClaimInvalid, Undecodable
from oncemq.message.claims.reference import Reference
from oncemq.message.decoding import make_decoder
from oncemq.message.envelope import Message
from oncemq.message.headers import CLAIM

HASH = "0" * 64
HOSTILE = [
    "/etc/passwd",
    "../../etc/passwd",
    f"20261231/../{HASH}",
    f"../20261231/{HASH}",
    f"20261231/{HASH}/../../x",
    f"/20261231/{HASH}",
    f"20261231//{HASH}",
    f"20261231/{HASH}\n",
    f"20261231/{HASH}\0",
    f"20261231/{HASH[:-1]}",
    f"\u0662\u0660261231/{HASH}",
    f"20261231/{'A' * 64}",
    f"file:///srv/20261231/{HASH}",
    f"s3://other-bucket/20261231/{HASH}",
    f"http://169.254.169.254/20261231/{HASH}",
    f"20261231\\{HASH}",
    "",
    None,
    7,
    ["20261231", HASH],
]


def message(body: bytes) -> Message:
    """Return a message that says that its body lies in a store."""
    return Message("orders", body, headers={CLAIM: "1"})


def test_a_reference_names_a_day_and_a_hash() -> None:
    """It is read as it was written."""
    made = Reference.of(b"x" * 1000, date(2026, 12, 31))
    assert Reference.read(message(made.to_bytes()), 1000) == made
    assert made.name.startswith("20261231/")


@pytest.mark.parametrize("name", HOSTILE)
def test_other_places_are_never_read(name: object) -> None:
    """Neither outside of the store nor in another one."""
    with pytest.raises(ClaimInvalid, match="other places are never read"):
        Reference.read(message(json.dumps({"claim": name, "size": 10}).encode()), 1000)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 1000, b" " * 2000, b'{"claim": 1}']
)
def test_what_is_no_reference_is_refused(body: bytes) -> None:
    """Whatever the body holds."""
    with pytest.raises(ClaimInvalid):
        Reference.read(message(body), 1000)


@pytest.mark.parametrize("size", [0, -1, 1001, 10**30, True, 1.5, "10", None])
def test_its_size_is_bounded(size: object) -> None:
    """A larger body is not even asked for."""
    body = json.dumps({"claim": f"20261231/{HASH}", "size": size}).encode()
    with pytest.raises(ClaimInvalid):
        Reference.read(message(body), 1000)


def test_a_reference_at_a_topic_without_a_store_is_refused() -> None:
    """It is not taken for a body."""
    with pytest.raises(ClaimInvalid, match="write claim_check: at the topic"):
        make_decoder("json")(message(b"{}"))
    with pytest.raises(Undecodable):
        make_decoder("json")(Message("orders", b""))
