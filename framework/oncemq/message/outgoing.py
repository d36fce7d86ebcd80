"""Prepares messages for a topic: encodes bodies, and refuses at once a message that no consumer could read."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol
from uuid import uuid4

from pydantic_core import PydanticSerializationError, to_json

from oncemq.common.clock import Clock, SystemClock
from oncemq.common.durations import LONGEST_DELAY, delay_of, format_duration
from oncemq.errors import BrokerError, MessageRefused, Unpublishable
from oncemq.message.decoding import Decoder
from oncemq.message.envelope import Envelope, Message, OutgoingMessage
from oncemq.message.headers import CONTENT_ENCODING, CONTENT_TYPE, PREFIX, PRIORITY
from oncemq.message.identity import canonical_key, canonical_version
from oncemq.message.reader import Reader
from oncemq.message.registry_header import CONFLUENT_JSON

VERSION = "version"
"""The header that carries `publish(version=…)`: `version: headers.version` reads it."""

CONTENT_TYPES = {"json": "application/json", "text": "text/plain"}
MAX_MESSAGE_ID = 255
"""Characters of a producer's own message id."""


class WhenUnroutable(StrEnum):
    """What to do with a message that its broker cannot route."""

    WAIT = "wait"
    DROP = "drop"
    DEAD_LETTER = "dead_letter"


class DelayBy(StrEnum):
    """What holds a message back that is published for later."""

    OUTBOX = "outbox"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Delays:
    """How a topic's messages are published for later.

    Args:
        by: what holds them back; None = nothing can.
        longest: for how long at most.
        clock: the time that counts.
    """

    by: DelayBy | None = None
    longest: timedelta = LONGEST_DELAY
    clock: Clock = field(default_factory=SystemClock)

    def due(self, topic: str, delay: timedelta | str | float | None, at: datetime | None) -> datetime | None:
        """Return when a message shall be sent; None = at once.

        Raises:
            Unpublishable: the delay is none, or too long, or nothing can hold the message back.
        """
        if delay is None and at is None:
            return None
        if delay is not None and at is not None:
            raise Unpublishable(f"delay= and at= were both given for topic {topic!r}: leave one out")
        now = self.clock.now()
        due = _moment(topic, at) if at is not None else now + _span(topic, delay)
        if due <= now:
            return None
        if self.by is None:
            raise Unpublishable(
                f"cannot be published to {topic!r} for later: the app has no database that keeps it until then, and its "
                "broker has no exact timer; add database:"
            )
        if due - now > self.longest:
            name = "broker" if self.by is DelayBy.BROKER else "outbox"
            raise Unpublishable(
                f"cannot be published to {topic!r} for {due.isoformat()}: its {name} holds a message back for "
                f"{format_duration(self.longest)} at most"
            )
        return due


def _span(topic: str, delay: object) -> timedelta:
    try:
        return delay_of(delay)
    except (TypeError, ValueError) as error:
        raise Unpublishable(f"delay={delay!r} for topic {topic!r}: {error}") from error


def _moment(topic: str, at: object) -> datetime:
    if not isinstance(at, datetime):
        raise Unpublishable(f"at={at!r} for topic {topic!r}: a moment is a datetime")
    if at.utcoffset() is None:
        raise Unpublishable(
            f"at={at!r} for topic {topic!r} has no time zone: write datetime(…, tzinfo=UTC), or .astimezone()"
        )
    return at


@dataclass(slots=True)
class Publishing:
    """A message that is about to be published, as a middleware's `on_publish` sees it; its `headers` may be changed.

    Args:
        topic: the topic's name in the app.
        body: as it was given, not yet encoded.
        key: as it was given; None where the topic reads it from the body.
        version: as it was given.
        headers: text to text; what is added here is sent.
        message_id: of the message.
    """

    topic: str
    body: Any
    key: str | int | None
    version: int | None
    headers: dict[str, str]
    message_id: str


SendErrors = list[BrokerError | None]
"""The error of each message; None for those that the broker has confirmed."""


class TopicTrace(Protocol):
    """Writes and measures the traces of the messages that are published to a topic."""

    def __call__(self, headers: dict[str, str], message_id: str) -> None:
        """Write the current trace into the headers of a message with this id."""

    def sending(self, messages: Sequence[OutgoingMessage], send: Callable[[], SendErrors]) -> SendErrors:
        """Return what `send` returns, which sends these messages to the broker."""


class Claims(Protocol):
    """Keeps large bodies in a store; see `oncemq.message.claims`."""

    def outgoing(self, message: OutgoingMessage) -> OutgoingMessage:
        """Return the message to send instead."""
        ...


OnPublish = Callable[[Publishing], Any]
"""Called before a message is encoded; may change its headers, or raise."""


class OutgoingTopic:
    """A topic of the app, as publishers see it.

    Args:
        name: the topic's name in the app.
        broker: the broker's name in the app.
        options: the topic's broker options.
        body_format: how bodies are encoded.
        decode: the reverse, with validation if the topic declares a schema.
        reader: finds key, version and identity, which every message must have; None if the topic declares no key.
        unroutable: what to do with messages that the broker cannot route.
        max_headers: the broker's limit in bytes for names and values of headers; None = no limit.
        trace: traces the messages; None = not traced.
        delays: how messages are published for later.
        hooks: called with each message, in order.
        claims: keeps large bodies in a store; None = they are sent.
        highest_priority: of its messages; 0 = the topic declares none; None = its broker has none.
    """

    __slots__ = (
        "_decode",
        "_format",
        "_max_headers",
        "_reader",
        "_trace",
        "broker",
        "claims",
        "delays",
        "highest_priority",
        "hooks",
        "name",
        "options",
        "unroutable",
    )

    def __init__(
        self,
        name: str,
        broker: str,
        options: Mapping[str, Any],
        body_format: str,
        decode: Decoder,
        reader: Reader | None,
        unroutable: WhenUnroutable = WhenUnroutable.WAIT,
        max_headers: int | None = None,
        trace: TopicTrace | None = None,
        delays: Delays = Delays(),
        hooks: Sequence[OnPublish] = (),
        claims: Claims | None = None,
        highest_priority: int | None = None,
    ) -> None:
        self.claims = claims
        self.highest_priority = highest_priority
        self.delays = delays
        self.hooks = tuple(hooks)
        self.unroutable = unroutable
        self._trace = trace
        self._max_headers = max_headers
        self.name = name
        self.broker = broker
        self.options = options
        self._format = body_format
        self._decode = decode
        self._reader = reader

    def __repr__(self) -> str:
        return f"<OutgoingTopic {self.name} on {self.broker}>"

    def with_hooks(self, hooks: Sequence[OnPublish]) -> "OutgoingTopic":
        """Return the same topic for publishers with these hooks instead."""
        other = copy(self)
        other.hooks = tuple(hooks)
        return other

    def message(
        self,
        body: Any,
        *,
        key: str | int | None = None,
        version: int | None = None,
        headers: Mapping[str, str] | None = None,
        message_id: str | None = None,
        delay: timedelta | str | float | None = None,
        at: datetime | None = None,
        priority: int | None = None,
    ) -> OutgoingMessage:
        """Return the message to be sent; its key is the one that keeps its order.

        Raises:
            Unpublishable: no consumer of the topic could read it; says why.
            ClaimStoreUnavailable: its body is large, and the store is away.
            Exception: raised by a hook.
        """
        try:
            own_id = _checked_id(message_id)
            if self.hooks:
                headers = self._asked(Publishing(self.name, body, key, version, dict(headers or {}), own_id))
            due = self.delays.due(self.name, delay, at)
            sent = self._headers(body, headers, version, own_id)
            if priority is not None:
                sent[PRIORITY] = self.priority(priority)
            made = self._message(body, key, version, sent, own_id)
        except MessageRefused as error:
            raise Unpublishable(f"cannot be published to {self.name!r}: {error}") from error
        if due is not None:
            made = replace(made, due_at=due, timer=self.delays.by is DelayBy.BROKER)
        # After all that may refuse it: what is refused leaves no body in the store.
        return made if self.claims is None else self.claims.outgoing(made)

    def priority(self, given: int) -> str:
        """Return a message's priority as its header has it.

        Raises:
            Unpublishable: the topic has no priorities, or not this one.
        """
        if self.highest_priority is None:
            raise Unpublishable(
                f"priority= was given for topic {self.name!r}, but its broker {self.broker!r} has no priorities: leave it out, "
                "and give urgent messages a topic of their own"
            )
        if self.highest_priority == 0:
            raise Unpublishable(
                f"priority= was given for topic {self.name!r}, which has no priorities: write max_priority: 10 at the topic"
            )
        if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= self.highest_priority:
            raise Unpublishable(
                f"priority={given!r} for topic {self.name!r}: write a whole number from 0 to {self.highest_priority}"
            )
        return str(given)

    def _asked(self, message: Publishing) -> Mapping[str, str]:
        for hook in self.hooks:
            hook(message)
        return message.headers

    def cancellation(self, key: str | int | None, message_id: str | None) -> OutgoingMessage:
        """Return the key and the id of messages that shall not be sent.

        Raises:
            Unpublishable: neither is given, or what holds this topic's messages back cannot forget them.
        """
        if key is None and message_id is None:
            raise Unpublishable(f"say what to cancel of topic {self.name!r}: key= or message_id=")
        if self.delays.by is not DelayBy.OUTBOX:
            raise Unpublishable(
                f"messages to {self.name!r} cannot be cancelled: they do not wait in the app's outbox; a topic with "
                "delay_by: outbox, in an app with a database, can forget them"
            )
        try:
            meant = None if key is None else canonical_key(key, f"key= of topic {self.name!r}")
            return OutgoingMessage(
                b"", {}, meant, message_id if message_id is None else _checked_id(message_id)
            )
        except MessageRefused as error:
            raise Unpublishable(f"cannot cancel messages to {self.name!r}: {error}") from error

    def _message(
        self,
        body: Any,
        key: str | int | None,
        version: int | None,
        headers: dict[str, str],
        own_id: str,
    ) -> OutgoingMessage:
        given = None if key is None else canonical_key(key, f"key= of topic {self.name!r}")
        raw = self.encode(body)
        message = Message(self.name, raw, own_id, headers, () if given is None else (given,))
        envelope = self.examine(message)
        if envelope is None:
            return OutgoingMessage(raw, headers, given, own_id)
        self._require_same("key", given, envelope.key)
        self._require_same("version", version, envelope.version)
        return OutgoingMessage(raw, headers, envelope.key, own_id)

    def examine(self, message: Message) -> Envelope | None:
        """Return the envelope that consumers make of a message; None if the topic declares no key.

        Raises:
            MessageRefused: they would refuse it.
        """
        if self._reader is None:
            self._decode(message)
            return None
        return self._reader.read(message)[0]

    def encode(self, body: Any) -> bytes:
        """Return the body's bytes; bytes are sent as they are.

        Raises:
            Unpublishable: the topic's format cannot encode it.
        """
        if isinstance(body, bytes):
            return body
        if self._format == "json":
            try:
                return to_json(body)
            except (PydanticSerializationError, UnicodeEncodeError) as error:
                raise Unpublishable(f"a body for topic {self.name!r} is not JSON: {error}") from error
        if self._format == CONFLUENT_JSON:
            raise Unpublishable(
                f"topic {self.name!r} has format {CONFLUENT_JSON}, and no registry is asked for a schema's id: give the whole body "
                "as bytes, with its header, as the registry's serializer makes it"
            )
        if isinstance(body, str):
            return body.encode()
        raise Unpublishable(
            f"topic {self.name!r} has format {self._format}, so a body must be text or bytes, not {type(body).__name__}"
        )

    def _headers(
        self, body: Any, given: Mapping[str, str] | None, version: int | None, message_id: str
    ) -> dict[str, str]:
        headers = {CONTENT_TYPE: CONTENT_TYPES[self._format]} if self._format in CONTENT_TYPES else {}
        if version is not None:
            headers[VERSION] = str(canonical_version(version, f"version= of topic {self.name!r}"))
        for name, text in (given or {}).items():
            if not isinstance(name, str) or not isinstance(text, str) or "\0" in name + text:
                raise Unpublishable(
                    f"header {name!r} for topic {self.name!r} is {text!r}: headers are text to text"
                )
            if name.startswith(PREFIX):
                raise Unpublishable(
                    f"header {name!r}: names that begin with {PREFIX} are the framework's own"
                )
            # A received message's headers may be passed on; its content encoding does not apply to a body encoded here.
            if name != CONTENT_ENCODING or isinstance(body, bytes):
                headers[name] = text
        if self._trace is not None:
            self._trace(headers, message_id)
        self._check_size(headers)
        return headers

    def sending(self, messages: Sequence[OutgoingMessage], send: Callable[[], SendErrors]) -> SendErrors:
        """Return what `send` returns, which sends these messages to the broker; it is traced."""
        return send() if self._trace is None else self._trace.sending(messages, send)

    def _check_size(self, headers: Mapping[str, str]) -> None:
        """Refuse headers that the broker would refuse each time the outbox sends them."""
        if self._max_headers is None:
            return
        size = sum(len(text.encode(errors="replace")) for pair in headers.items() for text in pair)
        if size > self._max_headers:
            raise Unpublishable(
                f"cannot be published to {self.name!r}: its headers have {size:,} bytes, and its broker takes "
                f"{self._max_headers:,} at most; put what is large into the body"
            )

    def _require_same(self, what: str, given: str | int | None, read: str | int | None) -> None:
        """Refuse two different values in one message: consumers would read them differently."""
        if given is not None and read is not None and given != read:
            raise Unpublishable(
                f"{what}={given!r} was given for topic {self.name!r}, whose consumers read {read!r} from the message: "
                f"leave {what}= out, or make both the same"
            )


def _checked_id(given: str | None) -> str:
    if given is None:
        return uuid4().hex
    if not isinstance(given, str) or not 0 < len(given) <= MAX_MESSAGE_ID or not given.isprintable():
        raise Unpublishable(f"message_id={given!r}: write up to {MAX_MESSAGE_ID} printable characters")
    return given
