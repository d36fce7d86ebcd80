"""Converts lines of a file into messages of a topic, and reports bad lines."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import IO, Any
from uuid import uuid4

from oncemq.errors import MessageRefused
from oncemq.message.decoding import Decoder, make_decoder
from oncemq.message.envelope import Envelope, Message, OutgoingMessage
from oncemq.message.headers import CONTENT_TYPE
from oncemq.registry import did_you_mean

MAX_LINE = 8 * 1024 * 1024
"""Bytes; a longer line is bad, and is skipped without being kept in memory."""

_FIELDS = ("body", "headers", "key", "id")
_TYPES = {"json": "application/json", "text": "text/plain"}


class BadLine(ValueError):
    """A line that is not a message of this topic."""


@dataclass(frozen=True, slots=True)
class Line:
    """A non-empty line: its number, and its message or error."""

    number: int
    message: OutgoingMessage | None
    problem: str = ""


class LineReader:
    """Parses the lines of one file.

    Args:
        topic: the topic's name in the app.
        body_format: encoding of the topic's bodies.
        examine: returns the envelope that consumers make of a message, None where the topic names no key, or raises `MessageRefused`.
        envelope: each line is an object with `body` and, if wanted, `headers`, `key`, `id`.
        more: headers of all messages.
    """

    def __init__(
        self,
        topic: str,
        body_format: str,
        examine: Callable[[Message], Envelope | None],
        *,
        envelope: bool,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._more = more
        self._topic = topic
        self._format = body_format
        self._examine = examine
        self._envelope = envelope
        self._parse: Decoder = make_decoder("json")

    def read(self, stream: IO[bytes]) -> Iterator[Line]:
        """Yield every non-empty line; a message without an id gets a new one."""
        for number, raw in _lines(stream):
            if raw is None:
                yield Line(number, None, f"longer than {MAX_LINE:,} bytes")
            elif raw.strip():
                yield self._line(number, raw)

    def _line(self, number: int, raw: bytes) -> Line:
        try:
            message = self._from_envelope(raw) if self._envelope else self._outgoing(raw, {}, None, None)
        except (BadLine, MessageRefused) as error:
            return Line(number, None, str(error))
        return Line(number, message)

    def _from_envelope(self, raw: bytes) -> OutgoingMessage:
        fields = self._parse(Message(self._topic, raw))
        if not isinstance(fields, dict) or "body" not in fields:
            raise BadLine(
                'with --envelope each line must be an object: {"body": …, "headers": …, "key": …, "id": …}'
            )
        for name in fields:
            if name not in _FIELDS:
                raise BadLine(f"unknown field {name!r}{did_you_mean(name, list(_FIELDS))}")
        headers = fields.get("headers") or {}
        if not isinstance(headers, dict) or not all(isinstance(text, str) for text in headers.values()):
            raise BadLine("headers must be an object of texts")
        return self._outgoing(
            self._encode(fields["body"]), headers, _text(fields, "key"), _text(fields, "id")
        )

    def _encode(self, body: Any) -> bytes:
        if self._format == "json":
            return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        if not isinstance(body, str):
            raise BadLine(f"the topic's format is {self._format}, so body must be a text")
        return body.encode()

    def _outgoing(
        self, body: bytes, headers: Mapping[str, str], key: str | None, message_id: str | None
    ) -> OutgoingMessage:
        if self._format in _TYPES:
            headers = {CONTENT_TYPE: _TYPES[self._format], **headers}
        headers = {**headers, **self._more}
        message_id = message_id or uuid4().hex
        message = Message(self._topic, body, message_id, headers, () if key is None else (key,))
        envelope = self._examine(message)
        found = key if key is not None or envelope is None else envelope.key
        return OutgoingMessage(body, headers, found, message_id)


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is None or (isinstance(value, str) and value):
        return value
    raise BadLine(f"{name} must be a text that is not empty")


def _lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes | None]]:
    number = 0
    while raw := stream.readline(MAX_LINE + 1):
        number += 1
        whole = len(raw) <= MAX_LINE
        rest = raw
        while not whole and rest and not rest.endswith(b"\n"):
            rest = stream.readline(MAX_LINE)
        yield number, raw.rstrip(b"\r\n") if whole else None
