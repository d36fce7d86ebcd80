"""Reads a `Message` into its `Envelope` and payload, as the topic declares key, version, identity and format."""

from collections.abc import Callable, Sequence
from typing import Any

from oncemq.errors import MessageRefused
from oncemq.message.body_version import Check
from oncemq.message.decoding import Decoder
from oncemq.message.envelope import Envelope, Message, make_envelope
from oncemq.message.expressions import Expression, compile_expression, split_list
from oncemq.message.identity import (
    MAX_IDENTITY_BYTES,
    MAX_KEY_BYTES,
    canonical_key,
    canonical_text,
    canonical_version,
    join_parts,
)

Identify = Callable[[Message, Any, str, int | None], str]
"""Called with the message, its decoded body, its key and its version; returns the identity."""


class Reader:
    """Reader of a topic's messages for one consumer; made once, called for every message.

    Args:
        broker: the broker's name in the app.
        topic: the topic's name in the app.
        group: the consumer group.
        key: the expression of the business key; `[first, second]` builds one key from several fields.
        version: the expression of the entity's version; None if messages carry none.
        identity: the expressions that identify a message; the words `key` and `version` mean
            those declared above. Empty: `[key, version]` if a version is declared, else the key. A broker's
            message id is used only if `message_id` is written here.
        decoder: from `make_decoder`.
        check: refuses a body that its own version does not allow; None = no body is checked.
        apart: text that is a part of every identity; empty = none.

    Raises:
        ValueError: an expression is wrong; says which and why.
    """

    __slots__ = (
        "_broker",
        "_check",
        "_decoder",
        "_group",
        "_identify",
        "_key",
        "_topic",
        "_version",
        "_version_source",
    )

    def __init__(
        self,
        broker: str,
        topic: str,
        group: str,
        *,
        key: str,
        version: str | None,
        identity: Sequence[str],
        decoder: Decoder,
        apart: str = "",
        check: Check | None = None,
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._group = group
        self._decoder = decoder
        self._check = check
        self._key = _key_reader(key, topic)
        self._version = _compiled("version", version) if version is not None else None
        self._version_source = f"version {version} of topic {topic!r}"
        self._identify = _identity_reader(tuple(identity), topic, apart, has_version=version is not None)

    def read(self, message: Message) -> tuple[Envelope, Any]:
        """Return the envelope and the decoded body.

        Raises:
            MessageRefused: it does not match the topic's declaration; the reason says what is wrong.
        """
        return self.read_decoded(message, self._decoder(message))

    def read_decoded(self, message: Message, body: Any) -> tuple[Envelope, Any]:
        """Return the envelope of a message with this decoded body, and the body; as `read`."""
        key = self._key(message, body)
        if self._check is not None:
            try:
                self._check(message, body, key)
            except MessageRefused as error:
                error.key = key
                raise
        version = None
        if self._version is not None:
            version = canonical_version(self._version(message, body), self._version_source)
        identity = self._identify(message, body, key, version)
        return make_envelope(self._broker, self._topic, self._group, key, version, identity, message), body

    def key_of(self, message: Message, body: Any) -> str:
        """Return the business key of a message that is refused for its body; empty if it has none."""
        try:
            return str(self._key(message, body))
        except MessageRefused:
            return ""

    def decode(self, message: Message) -> Any:
        """Return the body decoded again, sharing nothing with an earlier result.

        Raises:
            Undecodable: it does not match the topic's format.
        """
        return self._decoder(message)


def _compiled(what: str, text: str) -> Expression:
    try:
        return compile_expression(text)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def _key_reader(text: str, topic: str) -> Expression:
    source = f"key {text} of topic {topic!r}"
    parts = [(_compiled("key", part), f"{source}, {part}") for part in split_list(text)]
    if len(parts) > 1 or text.strip().startswith("["):
        return lambda message, body: join_parts(
            [canonical_text(find(message, body), part) for find, part in parts],
            source,
            max_bytes=MAX_KEY_BYTES,
        )
    find = parts[0][0]
    return lambda message, body: canonical_key(find(message, body), source)


def _identity_reader(expressions: tuple[str, ...], topic: str, apart: str, *, has_version: bool) -> Identify:
    if "version" in expressions and not has_version:
        raise ValueError("identity: it names version, but the topic declares none: write version: body.…")
    expressions = expressions or (("key", "version") if has_version else ("key",))
    source = f"identity {', '.join(expressions)} of topic {topic!r}"
    parts = [_identity_part(text, f"identity {text} of topic {topic!r}") for text in expressions]
    if apart:
        parts.insert(0, lambda _message, _body, _key, _version: apart)

    def identify(message: Message, body: Any, key: str, version: int | None) -> str:
        return join_parts([part(message, body, key, version) for part in parts], source)

    if apart:
        return identify
    if expressions == ("key",):
        return lambda message, body, key, version: (
            identify(message, body, key, version) if ":" in key or "%" in key else key
        )
    if expressions == ("key", "version"):
        return lambda message, body, key, version: (
            identify(message, body, key, version) if ":" in key or "%" in key else f"{key}:{version}"
        )
    return _single(parts[0], source) if len(parts) == 1 else identify


def _single(part: Identify, source: str) -> Identify:
    def identify(message: Message, body: Any, key: str, version: int | None) -> str:
        text = part(message, body, key, version)
        plain = len(text) <= MAX_IDENTITY_BYTES and text.isascii() and ":" not in text and "%" not in text
        return text if plain else join_parts([text], source)

    return identify


def _identity_part(text: str, source: str) -> Identify:
    if text == "key":
        return lambda _message, _body, key, _version: key
    if text == "version":
        return lambda _message, _body, _key, version: str(version)
    find = _compiled("identity", text)
    return lambda message, body, _key, _version: canonical_text(find(message, body), source)
