"""What handlers see of AMQP properties, and what travels on."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pika import BasicProperties

from oncemq.message import headers as names
from oncemq.message.envelope import OutgoingMessage
from oncemq_adapters.rabbitmq.messages.forwarding import next_hop, replayed
from oncemq_adapters.rabbitmq.messages.properties import for_publishing, read_message
from oncemq_adapters.rabbitmq.messages.raw_properties import raw_of

HISTORY: dict[str, Any] = {
    "x-death": [{"queue": "q", "count": 1}],
    "x-first-death-queue": "q",
    "x-last-death-reason": "expired",
    "x-delivery-count": 3,
    "CC": ["other-queue"],
}
OWN: dict[str, Any] = {
    "x-tenant": "a",
    "number": 7,
    "flag": True,
    "price": Decimal("1.5"),
    "when": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "table": {"a": [1, "b"]},
    "bytes": b"\xff",
    "nothing": None,
}


def read(**properties: Any) -> Any:
    """Return the message of these properties."""
    return read_message("topic", b"body", BasicProperties(**properties), redelivered=False)


def for_next_hop(properties: BasicProperties, added: dict[str, str], username: str) -> Any:
    """Return the properties of a copy."""
    return next_hop(raw_of(properties), b"body", added, username).properties


def for_replay(properties: BasicProperties, username: str) -> Any:
    """Return the properties of a dead letter that starts again."""
    return replayed(raw_of(properties), b"body", username).properties


def test_headers_are_text() -> None:
    """Values of every AMQP type are rendered as text."""
    assert read(headers=OWN).headers == {
        "x-tenant": "a",
        "number": "7",
        "flag": "true",
        "price": "1.5",
        "when": "2026-01-02T03:04:05+00:00",
        "table": '{"a": [1, "b"]}',
        "bytes": "\ufffd",
        "nothing": "null",
    }


def test_routing_history_is_not_shown() -> None:
    """The broker's own records are not the application's headers."""
    assert read(headers={**HISTORY, "tenant": "a"}).headers == {"tenant": "a"}


def test_content_type_and_encoding_are_headers() -> None:
    """The properties show under the names that every broker uses."""
    found = read(content_type="application/json", content_encoding="gzip").headers
    assert found == {"content-type": "application/json", "content-encoding": "gzip"}


def test_a_missing_message_id_is_none() -> None:
    """No id is invented, and an empty one is none."""
    assert read().message_id is None
    assert read(message_id="").message_id is None
    assert read(message_id="m").message_id == "m"


def test_published_time() -> None:
    """Our own header wins, then the timestamp in seconds or milliseconds; nonsense is no time."""
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    seconds = int(moment.timestamp())
    assert read(timestamp=seconds).published_at == moment
    assert read(timestamp=seconds * 1000).published_at == moment
    assert read(timestamp=1, headers={names.PUBLISHED_AT: moment.isoformat()}).published_at == moment
    assert read(timestamp=2**63).published_at is None
    assert read().published_at is None


def test_forged_attempts_are_harmless() -> None:
    """An attempt header of another type or of nonsense reads as a number or as 1."""
    assert read(headers={names.ATTEMPT: 3}).attempt == 3
    assert read(headers={names.ATTEMPT: "many"}).attempt == 1
    assert read(headers={names.ATTEMPT: None}).attempt == 1


def test_a_copy_keeps_everything_of_the_application() -> None:
    """Properties and headers travel on with their types; added headers win."""
    original = BasicProperties(
        content_type="application/json",
        content_encoding="gzip",
        headers={**OWN, **HISTORY},
        delivery_mode=1,
        priority=4,
        correlation_id="c",
        reply_to="r",
        message_id="m",
        timestamp=5,
        type="t",
        app_id="a",
    )
    copy = for_next_hop(original, {"number": "8", names.ATTEMPT: "2"}, "guest")
    assert copy.headers == {**OWN, "number": "8", names.ATTEMPT: "2"}
    kept = ("content_type", "content_encoding", "priority", "correlation_id", "reply_to", "message_id")
    for name in (*kept, "timestamp", "type", "app_id"):
        assert getattr(copy, name) == getattr(original, name)


def test_a_copy_is_persistent_and_does_not_expire() -> None:
    """A transient message with a time to live must not vanish from a retry or dead-letter queue."""
    copy = for_next_hop(BasicProperties(delivery_mode=1, expiration="5"), {}, "guest")
    assert (copy.delivery_mode, copy.expiration) == (2, None)


def test_a_foreign_user_id_does_not_travel() -> None:
    """The broker closes the channel of who publishes under another user's name."""
    assert for_next_hop(BasicProperties(user_id="someone"), {}, "guest").user_id is None
    assert for_next_hop(BasicProperties(user_id="guest"), {}, "guest").user_id == "guest"


def test_the_original_is_left_alone() -> None:
    """Making a copy changes nothing of the delivery: a failed retry is tried again with it."""
    original = BasicProperties(headers=dict(HISTORY))
    for_next_hop(original, {"a": "b"}, "guest")
    assert original.headers == HISTORY


def test_a_replay_starts_over() -> None:
    """Attempts and causes go, the application's headers, the first publishing and the key stay."""
    ours = {
        names.ATTEMPT: "6",
        names.REASON: "rejected",
        names.KEY: "k",
        names.PUBLISHED_AT: "2026-01-01T00:00:00Z",
    }
    copy = for_replay(BasicProperties(headers={**OWN, **HISTORY, **ours}), "guest")
    assert copy.headers == {**OWN, names.KEY: "k", names.PUBLISHED_AT: "2026-01-01T00:00:00Z"}


def test_a_new_message_says_what_it_is() -> None:
    """Content type and encoding become properties, the key and the time headers."""
    now = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    message = OutgoingMessage(b"x", {"content-type": "text/plain", "tenant": "a"}, key="k")
    properties = for_publishing(message, now, "m", "app")
    assert (properties.content_type, properties.message_id, properties.delivery_mode) == (
        "text/plain",
        "m",
        2,
    )
    assert properties.headers == {"tenant": "a", names.KEY: "k", names.PUBLISHED_AT: now.isoformat()}
