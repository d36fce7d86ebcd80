"""The values that are made for every message have quick makers, which make the same as the constructors."""

import gzip
import pickle
from dataclasses import FrozenInstanceError, dataclass
from datetime import UTC, datetime
from typing import Any, Self

import pytest

from oncemq.message.envelope import BrokerMetadata, Envelope, Message, make_envelope, make_message
from support.engine import make_topic

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


def test_a_quick_message_cannot_be_changed() -> None:
    """It is as frozen as any other."""
    with pytest.raises(FrozenInstanceError):
        quick().attempt = 4  # type: ignore[misc]


@pytest.mark.parametrize(
    "ours",
    [
        {},
        {"oncemq-published-at": "2026-11-01T00:00:00+00:00", "oncemq-key": "k"},
        {"oncemq-attempt": "2", "oncemq-error-text": "no", "oncemq-message-id": "m", "oncemq-forged": "x"},
    ],
)
def test_an_envelope_shows_the_applications_headers_alone(ours: dict[str, str]) -> None:
    """On a first try and on a retry alike; the message keeps what the framework needs."""
    message = Message("t", b"x", headers={"a": "b", **ours, "x-oncemq-like": "c"})
    assert make_envelope("b", "t", "g", "k", None, "k", message).headers == {"a": "b", "x-oncemq-like": "c"}
    assert message.headers.keys() >= ours.keys()


def test_a_received_messages_headers_can_be_published_with_another_body() -> None:
    """Also those of a packed message: the new body is not packed, and bytes are sent as their headers say."""
    topic = make_topic("orders")
    message = Message(
        "t",
        b"",
        headers={"content-type": "application/json", "content-encoding": "gzip", "oncemq-attempt": "2"},
    )
    received = make_envelope("b", "t", "g", "k", None, "k", message).headers
    assert topic.message({"key": "k"}, headers=received).headers == {"content-type": "application/json"}
    packed = gzip.compress(b'{"key": "k"}')
    assert topic.message(packed, headers=received).headers == received


@dataclass(frozen=True, slots=True)
class Queues(BrokerMetadata):
    """What a broker of queues says."""

    number: int

    @classmethod
    def read(cls, source: Any) -> Self | None:
        """Return the metadata in a number."""
        return cls(source) if isinstance(source, int) else None


class Logs(Queues):
    """What another broker says."""

    @classmethod
    def read(cls, source: Any) -> Self | None:
        """Return nothing: it is never this one's."""
        return None


def from_broker(source: Any) -> Envelope:
    """Return an envelope of a message with this source of metadata."""
    message = Message("t", b"x", metadata_source=source)
    return make_envelope("main", "t", "g", "k", None, "k", message)


def test_a_handler_asks_for_its_brokers_metadata() -> None:
    """Also in a copy of the envelope that another process has; another broker's is a mistake in the handler."""
    envelope = pickle.loads(pickle.dumps(from_broker(7)))
    assert envelope.metadata(Queues) == Queues(7)
    with pytest.raises(TypeError, match="a message of broker 'main' has no Logs"):
        envelope.metadata(Logs)


def test_metadata_makes_no_other_message() -> None:
    """Two deliveries of one message are equal, and one that no broker has delivered just now has none."""
    assert from_broker(7) == from_broker(8)
    assert from_broker(None).metadata(Queues) is None
