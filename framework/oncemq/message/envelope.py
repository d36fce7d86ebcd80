"""Values of a message at each stage: `Message` as read, `Envelope` as understood, `Delivery` to be settled."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar

from oncemq.errors import MessageRefused
from oncemq.message.headers import without_ours


class BrokerMetadata:
    """Base of what a broker says about one delivery; each adapter has a class of its own for it."""

    __slots__ = ()

    @classmethod
    def read(cls, source: Any) -> Self | None:
        """Return the metadata that an adapter's `metadata_source` holds; None if it is another adapter's.

        Args:
            source: `Message.metadata_source`; reading it is what costs, so it is done for those who ask.
        """
        raise NotImplementedError


Metadata = TypeVar("Metadata", bound=BrokerMetadata)


class _MessageFields:
    """A message under construction; see `make_message`."""

    __slots__ = (
        "attempt",
        "body",
        "claimed",
        "first_failed_at",
        "headers",
        "keys",
        "message_id",
        "metadata_source",
        "published_at",
        "raw",
        "redelivered",
        "topic",
    )


@dataclass(frozen=True, slots=True)
class Message(_MessageFields):
    """One message as an adapter read it from its broker; not interpreted.

    Args:
        topic: the topic's name in the app.
        body: the original bytes.
        message_id: the broker's or the producer's id, if any.
        headers: text to text; the adapter renders values of other types. `content-type` and
            `content-encoding` are here under these names.
        keys: the broker's own business keys (RocketMQ's Keys, Kafka's key), in order.
        attempt: 1 for the first delivery; counts attempts that are charged to the message.
        redelivered: the broker marked it as redelivered.
        published_at: when it was first published, aware; kept through retries.
        first_failed_at: when it failed for the first time, aware.
        raw: headers and properties as the broker sent them, in a form only the adapter reads; copies are made from
            it, so that they lose nothing. None if the fields above contain everything.
        metadata_source: what the adapter's `BrokerMetadata` reads; None if it has none.
        claimed: the body that the message refers to, once it has been fetched from its store.
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
    metadata_source: Any = field(default=None, repr=False, compare=False)
    claimed: bytes | None = field(default=None, repr=False, compare=False)


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
    metadata_source: Any = None,
) -> Message:
    """Return the message; several times as fast as the constructor, which protects every field."""
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
    message.metadata_source = metadata_source
    message.claimed = None
    message.__class__ = Message
    return message  # type: ignore[no-any-return]


class _EnvelopeFields:
    """An envelope under construction; see `make_envelope`."""

    __slots__ = (
        "attempt",
        "body",
        "broker",
        "group",
        "headers",
        "identity",
        "key",
        "message_id",
        "metadata_source",
        "published_at",
        "topic",
        "version",
    )


@dataclass(frozen=True, slots=True)
class Envelope(_EnvelopeFields):
    """One received message as a value: its entity (`key`), its identity and its content.

    Args:
        broker: the broker's name in the app.
        topic: the topic's name in the app.
        group: the consumer group that received it.
        key: the business entity; decides order, locks and the worker.
        version: the entity's version or sequence number, if the message carries one.
        identity: canonical text; equal for copies of one message.
        message_id: the broker's or the producer's id, if any.
        attempt: 1 for the first try; counts attempts that are charged to the message.
        headers: the application's own, text to text, without the framework's `oncemq-*` headers, so that they can be
            passed to `publish`. Read-only on every broker.
        body: the original bytes.
        published_at: when it was first published, aware.
        metadata_source: for `metadata`; private to the adapter.
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
    metadata_source: Any = field(default=None, repr=False, compare=False)

    def metadata(self, kind: type[Metadata]) -> Metadata | None:
        """Return what the broker says of this delivery, such as queue and offset, or exchange and routing key.

        It is that of the delivery: a retry that comes back by a copy has its own. None where the message did not come from
        a broker just now, since it was parked in the ledger.

        Args:
            kind: the adapter's class, such as `oncemq_adapters.rocketmq.RocketMQMetadata`.

        Raises:
            TypeError: the message came from another kind of broker.
        """
        if self.metadata_source is None:
            return None
        found = kind.read(self.metadata_source)
        if found is None:
            raise TypeError(f"a message of broker {self.broker!r} has no {kind.__name__}")
        return found


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
        self.metadata_source = message.metadata_source


def make_envelope(
    broker: str, topic: str, group: str, key: str, version: int | None, identity: str, message: Message
) -> Envelope:
    """Return the envelope of `message`; four times as fast as the constructor, which protects every field."""
    envelope: Any = _OpenEnvelope(broker, topic, group, key, version, identity, message)
    envelope.__class__ = Envelope
    return envelope  # type: ignore[no-any-return]


class Delivery:
    """A message in flight: settled exactly once, or void when its connection or lease is lost.

    Attributes:
        message: as the adapter read it.
        token: the adapter's own handle; private to it.
        generation: the connection or assignment of the delivery; the adapter compares it when settling.
        expires_at: monotonic seconds after which the broker redelivers it elsewhere; None = never.
        envelope: the interpreted message; None until then, and for good if it was refused.
        key: the envelope's key, stored here because the scheduler reads it often.
        payload: the decoded body for the first run; later runs decode again.
        refusal: why the message can never be applied; None if it was accepted.
        failures: how often the database failed while this message ran alone; the third may be charged.
        commits_at_failure: number of units committed at the first such failure.
        failed_since: monotonic seconds of that failure.
        deferred_since: monotonic seconds of its first Defer; 0.0 if there was none.
        immediate: how often it was tried again at once, in this delivery.
        suspect: a process died while this message was running, or may have been; it runs isolated.
        crashes: how often a process certainly died because of it; each is charged as an attempt.
        route: which of the consumer's routes it has that differ from its others, from 1; 0 = none of them.
        source: its source if that was not the broker; also settles it; never lost with a connection.
        parked_at: when it was parked in the ledger, aware; None if it is not parked.
        answer: for who requested one, as bytes of JSON; None = there is none. Set before it is acknowledged; before it is
            dead-lettered, if failures are answered.
        answered: what came of the answer, set by the adapter: `result`, `failure` or `dropped`; empty if none was sent.
        outcome: the name of its verdict, set before it is settled; empty until then.
        concurrency: the value by which its consumer limits how many run at once; not set where it does not.
        group: the value that all messages of a batch have; not set where batches have any.
        waits_since: since when it waits for others of its batch, in monotonic seconds; not set where it does not.
    """

    concurrency: str
    group: str
    waits_since: float

    __slots__ = (
        "answer",
        "answered",
        "commits_at_failure",
        "concurrency",
        "crashes",
        "deferred_since",
        "envelope",
        "expires_at",
        "failed_since",
        "failures",
        "generation",
        "group",
        "immediate",
        "key",
        "message",
        "outcome",
        "parked_at",
        "payload",
        "refusal",
        "route",
        "settled",
        "source",
        "suspect",
        "token",
        "waits_since",
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
        self.immediate = 0
        self.suspect = False
        self.crashes = 0
        self.route = 0
        self.source = source
        self.parked_at: datetime | None = None
        self.settled = False
        self.outcome = ""
        self.answer: bytes | None = None
        self.answered = ""

    @property
    def known_key(self) -> str:
        """The business key, also of a message that is refused for its body; empty where none was found."""
        if self.envelope is not None:
            return self.envelope.key
        return "" if self.refusal is None else self.refusal.key

    def __repr__(self) -> str:
        return f"<Delivery {self.message.topic} key={self.key!r} attempt={self.message.attempt}>"


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to be published.

    Args:
        body: the bytes to send.
        headers: text to text.
        key: the business key, for brokers that support one.
        message_id: the producer's id; the same on every attempt to publish this message.
        delay: the earliest delivery from now, if the broker supports it.
        due_at: when it shall be sent, aware; None = at once.
        timer: until then the broker holds it back, not the outbox.
    """

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    message_id: str | None = None
    delay: timedelta | None = None
    due_at: datetime | None = None
    timer: bool = False

    def timed(self, now: datetime) -> "OutgoingMessage":
        """Return the message with the delay that is left, for a broker."""
        if self.due_at is None:
            return self
        left = self.due_at - now
        return replace(self, delay=left if left > timedelta(0) else None, due_at=None, timer=False)
