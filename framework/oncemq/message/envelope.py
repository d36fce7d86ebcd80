"""The values a message is at each stage: `Message` as read, `Envelope` as understood, `Delivery` to be settled."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from oncemq.errors import MessageRefused
from oncemq.message.headers import without_ours


class _MessageFields:
    """A message that is still being written; see `make_message`."""

    __slots__ = (
        "attempt",
        "body",
        "first_failed_at",
        "headers",
        "keys",
        "message_id",
        "published_at",
        "raw",
        "redelivered",
        "topic",
    )


@dataclass(frozen=True, slots=True)
class Message(_MessageFields):
    """One message as an adapter read it from its broker; nothing in it has been interpreted.

    Args:
        topic: the topic's name in the app.
        body: the original bytes.
        message_id: the broker's or the producer's id, where there is one.
        headers: text to text; values of other types are rendered by the adapter. `content-type` and
            `content-encoding` are here under these names.
        keys: the broker's own business keys (RocketMQ's Keys, Kafka's key), in order.
        attempt: 1 for the first delivery; counts what the message itself caused.
        redelivered: the broker says that it has delivered this before.
        published_at: when it was first published, aware; kept through retries.
        first_failed_at: when it failed for the first time, aware.
        raw: headers and properties as the broker sent them, in a form that only the adapter reads; copies are made of
            it, so that they lose nothing. None where the fields above say all.
    """

    topic: str
    body: bytes = field(repr=False)
    message_id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    attempt: int = 1
    redelivered: bool = False
    published_at: datetime | None = None
    first_failed_at: datetime | None = None
    raw: bytes | None = field(default=None, repr=False, compare=False)


class _OpenMessage(_MessageFields):
    __slots__ = ()


def make_message(
    topic: str,
    body: bytes,
    *,
    message_id: str | None,
    headers: Mapping[str, str],
    keys: tuple[str, ...],
    attempt: int,
    redelivered: bool,
    published_at: datetime | None,
    first_failed_at: datetime | None,
    raw: bytes | None = None,
) -> Message:
    """Return the message; several times as fast as the constructor, which guards every field."""
    message: Any = _OpenMessage()
    message.topic = topic
    message.body = body
    message.message_id = message_id
    message.headers = headers
    message.keys = keys
    message.attempt = attempt
    message.redelivered = redelivered
    message.published_at = published_at
    message.first_failed_at = first_failed_at
    message.raw = raw
    message.__class__ = Message
    return message  # type: ignore[no-any-return]


class _EnvelopeFields:
    """An envelope that is still being written; see `make_envelope`."""

    __slots__ = (
        "attempt",
        "body",
        "broker",
        "group",
        "headers",
        "identity",
        "key",
        "message_id",
        "published_at",
        "topic",
        "version",
    )


@dataclass(frozen=True, slots=True)
class Envelope(_EnvelopeFields):
    """One received message as a value: what it is about (`key`), which one it is (`identity`), what it says.

    Args:
        broker: the broker's name in the app.
        topic: the topic's name in the app.
        group: the consumer group that received it.
        key: the business entity; decides order, locks and which worker.
        version: the entity's version or sequence number, where the message carries one.
        identity: canonical text of what makes two messages the same one.
        message_id: the broker's or the producer's id, where there is one.
        attempt: 1 for the first try; counts what the message itself caused.
        headers: the application's own, text to text; the framework's `oncemq-*` headers are left out, so that these
            may be given to `publish`.
        body: the original bytes.
        published_at: when it was first published, aware.
    """

    broker: str
    topic: str
    group: str
    key: str
    version: int | None
    identity: str
    message_id: str | None
    attempt: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    published_at: datetime | None


class _OpenEnvelope(_EnvelopeFields):
    __slots__ = ()

    def __init__(
        self,
        broker: str,
        topic: str,
        group: str,
        key: str,
        version: int | None,
        identity: str,
        message: Message,
    ) -> None:
        self.broker = broker
        self.topic = topic
        self.group = group
        self.key = key
        self.version = version
        self.identity = identity
        self.message_id = message.message_id
        self.attempt = message.attempt
        self.headers = without_ours(message.headers)
        self.body = message.body
        self.published_at = message.published_at


def make_envelope(
    broker: str, topic: str, group: str, key: str, version: int | None, identity: str, message: Message
) -> Envelope:
    """Return the envelope of `message`; four times as fast as the constructor, which guards every field."""
    envelope: Any = _OpenEnvelope(broker, topic, group, key, version, identity, message)
    envelope.__class__ = Envelope
    return envelope  # type: ignore[no-any-return]


class Delivery:
    """A message in our hands: settled exactly once, or void when its connection or lease is lost.

    Attributes:
        message: what the adapter read.
        token: the adapter's own handle; nobody else reads it.
        generation: which connection or assignment it came by; the adapter compares it when settling.
        expires_at: monotonic seconds after which the broker gives it to somebody else; None = never.
        envelope: what the message means; None until understood, and for ever if it was refused.
        key: the envelope's key, here because the scheduler asks for it all the time.
        payload: the decoded body, used by the first run; later ones decode again.
        refusal: why the message can never be applied; None for one that was understood.
        failures: how often the database failed while this message ran alone; the third may count.
        commits_at_failure: how many units had been committed at the first such failure.
        failed_since: monotonic seconds of that failure.
        deferred_since: monotonic seconds of its first Defer; 0.0 while there was none.
        suspect: a process died while this message was running, or may have been; it runs alone.
        crashes: how often a process surely died because of it; each counts as an attempt.
        source: what delivered it, where that was not the broker: it settles it, too; never lost with a connection.
        parked_at: since when it has waited in the ledger for its turn, aware; None for what does not.
    """

    __slots__ = (
        "commits_at_failure",
        "crashes",
        "deferred_since",
        "envelope",
        "expires_at",
        "failed_since",
        "failures",
        "generation",
        "key",
        "message",
        "parked_at",
        "payload",
        "refusal",
        "settled",
        "source",
        "suspect",
        "token",
    )

    def __init__(
        self,
        message: Message,
        token: Any = None,
        generation: int = 0,
        expires_at: float | None = None,
        source: Any = None,
    ) -> None:
        self.message = message
        self.token = token
        self.generation = generation
        self.expires_at = expires_at
        self.envelope: Envelope | None = None
        self.key = ""
        self.payload: Any = None
        self.refusal: MessageRefused | None = None
        self.failures = 0
        self.commits_at_failure = 0
        self.failed_since = 0.0
        self.deferred_since = 0.0
        self.suspect = False
        self.crashes = 0
        self.source = source
        self.parked_at: datetime | None = None
        self.settled = False

    def __repr__(self) -> str:
        return f"<Delivery {self.message.topic} key={self.key!r} attempt={self.message.attempt}>"


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to be published.

    Args:
        body: the bytes to send.
        headers: text to text.
        key: the business key, for brokers that carry one.
        message_id: the producer's id; the same on every try to publish this message.
        delay: deliver it not before this long from now, where the broker can.
    """

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    message_id: str | None = None
    delay: timedelta | None = None
