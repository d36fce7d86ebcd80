"""The values that are made for every message have quick makers, which make the same as the constructors."""

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime

import pytest

from oncemq.message.envelope import Envelope, Message, make_envelope, make_message

NOW = datetime(2026, 11, 1, tzinfo=UTC)
MESSAGE = Message(
    "t", b"x", "m-1", {"a": "b"}, ("k",), 3, redelivered=True, published_at=NOW, first_failed_at=NOW
)


def quick() -> Message:
    """Return the same message as `MESSAGE`, made the quick way."""
    return make_message(
        "t",
        b"x",
        message_id="m-1",
        headers={"a": "b"},
        keys=("k",),
        attempt=3,
        redelivered=True,
        published_at=NOW,
        first_failed_at=NOW,
    )


def test_a_quick_message_is_the_constructors() -> None:
    """Type and every field are the same."""
    made = quick()
    assert type(made) is Message
    assert made == MESSAGE


def test_a_quick_envelope_is_the_constructors() -> None:
    """Type and every field are the same."""
    made = make_envelope("b", "t", "g", "k", 7, "k:7", MESSAGE)
    assert type(made) is Envelope
    assert made == Envelope(
        broker="b",
        topic="t",
        group="g",
        key="k",
        version=7,
        identity="k:7",
        message_id="m-1",
        attempt=3,
        headers={"a": "b"},
        body=b"x",
        published_at=NOW,
    )


def test_a_quick_message_can_be_changed_by_nobody() -> None:
    """It is as frozen as any other."""
    with pytest.raises(FrozenInstanceError):
        quick().attempt = 4  # type: ignore[misc]
