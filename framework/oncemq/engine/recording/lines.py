"""Format of a recording: one JSON object a line, the first of which says what was recorded."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Self

from oncemq.message.envelope import Envelope, Message

FORMAT: Final = 1
"""Version of the format; a reader refuses others."""
MAGIC: Final = "oncemq_recording"
"""Name in the first line whose value is the version."""

MASKED: Final = "masked:"
"""Beginning of what replaces a masked value; equal values have equal replacements within one recording."""

DEAD: Final = "dead"
"""Outcome of a line that only says that the message became a dead letter in the end."""


_quoted: Final = json.encoder.encode_basestring_ascii
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
"""One encoder for all lines: `json.dumps` makes one for each call."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an operator wants to be recorded, besides what every recording has.

    Args:
        bodies: whole bodies, except for what is masked.
        fields: paths in the body that are recorded alone.
        masks: paths in the body whose values are replaced.
        headers: names of headers that are recorded.
        salt: makes replacements of this recording unlike those of others; never written to the file.
    """

    bodies: bool = False
    fields: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    salt: str = ""

    def as_json(self) -> str:
        """Return it as text for the ledger."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def of_json(cls, text: str) -> Self:
        """Return what `as_json` has written; what a newer OnceMQ has added is ignored."""
        found = json.loads(text)
        return cls(
            bool(found.get("bodies")),
            tuple(found.get("fields", ())),
            tuple(found.get("masks", ())),
            tuple(found.get("headers", ())),
            str(found.get("salt", "")),
        )

    @property
    def reads_bodies(self) -> bool:
        """Whether bodies have to be decoded."""
        return self.bodies or bool(self.fields)


class Noted(NamedTuple):
    """One arrival, as a worker notes it.

    Args:
        at: seconds since 1970.
        message: as it was delivered.
        envelope: as it was read; None if it could not be.
        outcome: the verdict's.
        code: the reason of a dead letter; else empty.
        tried: the handler ran.
        parked: it came from the ledger.
    """

    at: float
    message: Message
    envelope: Envelope | None
    outcome: str
    code: str
    tried: bool
    parked: bool


def lines_of(noted: Sequence[Noted], wanted: Wanted, decode: Callable[[Message], Any]) -> str:
    """Return one line for each arrival.

    Args:
        noted: in order of arrival.
        wanted: what to record.
        decode: returns the decoded body.
    """
    names = {name.lower() for name in wanted.headers}
    found = [_line(each, names) for each in noted]
    if wanted.reads_bodies:
        bodies = ["" if each.outcome == DEAD else _body(each.message, wanted, decode) for each in noted]
        found = [
            f'{line[:-1]},"body":{body}}}' if body else line for line, body in zip(found, bodies, strict=True)
        ]
    return "\n".join(found) + "\n" if found else ""


def _line(noted: Noted, names: set[str]) -> str:
    """Return a line without its body; put together by hand, which takes a third of an encoder's time."""
    message, envelope = noted.message, noted.envelope
    line = f'{{"at":{noted.at:.3f},"outcome":"{noted.outcome}"'
    if envelope is not None:
        line += f',"key":{_quoted(envelope.key)},"identity":{_quoted(envelope.identity)}'
        if envelope.version is not None:
            line += f',"version":{envelope.version}'
    line += f',"print":"{blake2b(message.body, digest_size=8).hexdigest()}"'
    if message.message_id is not None:
        line += f',"id":{_quoted(message.message_id)}'
    if message.published_at is not None:
        line += f',"published":{message.published_at.timestamp():.3f}'
    if noted.code or noted.parked or not noted.tried or message.attempt != 1:
        line += _rarely(noted)
    else:
        line += ',"tried":true'
    if message.keys and (envelope is None or message.keys != (envelope.key,)):
        line += f',"keys":{_encode(message.keys)}'
    if names:
        headers = {name: text for name, text in message.headers.items() if name.lower() in names}
        line += f',"headers":{_encode(headers)}'
    return line + "}"


def _rarely(noted: Noted) -> str:
    """Return what most lines do not have."""
    found = {
        "attempt": noted.message.attempt,
        "code": noted.code,
        "tried": noted.tried,
        "parked": noted.parked,
    }
    return "".join(
        f',"{name}":{_encode(value)}'
        for name, value in found.items()
        if value and (name, value) != ("attempt", 1)
    )


def _body(message: Message, wanted: Wanted, decode: Callable[[Message], Any]) -> str:
    """Return what is recorded of a body; empty for one that cannot be decoded, masked, or written as JSON."""
    try:
        body = decode(message)
        if wanted.fields and not wanted.bodies:
            body = _only(body, [path.split(".") for path in wanted.fields])
        for path in wanted.masks:
            if not isinstance(body, dict | list):
                return ""
            body = _masked(body, path.split("."), wanted.salt)
        return _encode(body)
    except Exception:
        return ""


def _only(body: Any, paths: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return an object with nothing but these fields; a list below a field is kept whole."""
    kept: dict[str, Any] = {}
    for path in paths:
        value, here = body, kept
        for step in path[:-1]:
            value = value.get(step) if isinstance(value, dict) else None
        if not isinstance(value, dict) or path[-1] not in value:
            continue
        for step in path[:-1]:
            here = here.setdefault(step, {})
        here[path[-1]] = value[path[-1]]
    return kept


def _masked(value: Any, path: Sequence[str], salt: str) -> Any:
    """Return a copy in which what `path` leads to is replaced; lists on the way are walked through."""
    if isinstance(value, list):
        return [_masked(each, path, salt) for each in value]
    if not path:
        return replacement(value, salt)
    if not isinstance(value, dict) or path[0] not in value:
        return value
    return {**value, path[0]: _masked(value[path[0]], path[1:], salt)}


def replacement(value: Any, salt: str) -> Any:
    """Return what stands for a masked value; nothing stands for None."""
    if value is None:
        return None
    text = json.dumps(value, sort_keys=True, default=str)
    return MASKED + blake2b(text.encode(), digest_size=8, key=salt.encode()[:64]).hexdigest()


def moment(seconds: float) -> str:
    """Return a time for people."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
