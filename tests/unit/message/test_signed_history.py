"""What a message carries of its tries counts where it is signed."""

import pytest

from oncemq.message import headers as names
from oncemq.message.envelope import Message
from oncemq.message.signed_history import HistoryKeys, place_of, without_history

KEYS = HistoryKeys("k" * 32)
PLACE = place_of("points", "orders")
CLAIMS = {names.ATTEMPT: "3", names.FIRST_FAILED_AT: "2026-01-01T00:00:00+00:00"}
SIGNED = KEYS.signed(CLAIMS, PLACE, "order-1", b"body")


def message(headers: dict[str, str], body: bytes = b"body") -> Message:
    """Return a message with its attempt as adapters read it."""
    return Message("orders", body, headers=headers, attempt=names.attempt_of(headers))


def test_signed_claims_are_believed() -> None:
    """The message is as it was; headers that copies may drop make no difference."""
    received = message({**SIGNED, names.ERROR_TEXT: "cut off"})
    assert KEYS.believed(received, PLACE, "order-1") is received


def test_message_that_claims_nothing_needs_no_signature() -> None:
    """New messages are not signed."""
    received = message({"tenant": "a"})
    assert KEYS.believed(received, PLACE, "order-1") is received


@pytest.mark.parametrize(
    "headers",
    [
        CLAIMS,
        {**CLAIMS, names.HISTORY_MAC: "=" + "0" * 64},
        {**CLAIMS, names.HISTORY_MAC: "\u00e4;=\ud800"},
        {**SIGNED, names.ATTEMPT: "4"},
        {**SIGNED, names.HISTORY_MAC: SIGNED[names.HISTORY_MAC].replace(names.FIRST_FAILED_AT, "", 1)},
    ],
)
def test_claims_without_their_signature_are_not_believed(headers: dict[str, str]) -> None:
    """None, a wrong one, one that is no text, a changed claim, a changed list of claims."""
    assert KEYS.believed(message(headers), PLACE, "order-1") is None


@pytest.mark.parametrize(
    ("place", "identity", "body"),
    [
        (place_of("mail", "orders"), "order-1", b"body"),
        (place_of("points", "refunds"), "order-1", b"body"),
        (PLACE, "order-2", b"body"),
        (PLACE, "order-1", b"another body"),
    ],
)
def test_a_signature_cannot_be_moved(place: str, identity: str, body: bytes) -> None:
    """It belongs to one group, one topic, one identity and one body."""
    assert KEYS.believed(message(SIGNED, body), place, identity) is None


def test_claims_beside_the_signed_ones_are_dropped() -> None:
    """A copy keeps what a stranger wrote into its original; the signed claims still count, else it never ends."""
    found = KEYS.believed(message({**SIGNED, names.WAITING_SINCE: "2026-01-01"}), PLACE, "order-1")
    assert found is not None
    assert names.WAITING_SINCE not in found.headers
    assert found.attempt == 3


def test_keys_can_be_replaced() -> None:
    """While there are two, signatures of both are accepted, and new ones are those of the first."""
    fresh = HistoryKeys("n" * 32, "k" * 32)
    assert fresh.believed(message(SIGNED), PLACE, "order-1") is not None
    assert KEYS.believed(message(fresh.signed(CLAIMS, PLACE, "order-1", b"body")), PLACE, "order-1") is None


def test_message_without_history_is_a_new_one() -> None:
    """Attempt, first failure and all that was claimed are gone; the application's headers stay."""
    found = without_history(message({**SIGNED, "tenant": "a"}))
    assert (found.attempt, found.first_failed_at, found.headers) == (1, None, {"tenant": "a"})
