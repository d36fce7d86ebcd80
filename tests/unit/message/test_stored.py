"""Tests of envelopes as text in tables."""

from datetime import UTC, datetime

import pytest

from oncemq.message.envelope import Envelope
from oncemq.message.stored import from_text, to_text


def _envelope(source: object) -> Envelope:
    return Envelope(
        broker="main",
        topic="orders",
        group="shop",
        key="k",
        version=3,
        identity="k:3",
        message_id="m",
        attempt=2,
        headers={"trace": "ü"},
        body=b"\x00\xff{}",
        published_at=datetime(2026, 1, 2, tzinfo=UTC),
        metadata_source=source,
    )


def test_an_envelope_comes_back_whole() -> None:
    """Each byte and header; what the adapter keeps of the delivery is no part of it, whatever its type."""
    assert from_text(to_text(_envelope(object()))) == _envelope(None)


def test_headers_of_a_stored_envelope_cannot_be_changed() -> None:
    """As those of one that has just arrived."""
    with pytest.raises(TypeError, match="cannot be changed"):
        from_text(to_text(_envelope(None))).headers["trace"] = "x"  # type: ignore[index]
