"""Finds the version of a message's body: in the message, by the id that a schema registry's client wrote, or as the topic says."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from oncemq.errors import UnacceptedSchema, Undecodable
from oncemq.message.compression import decompress
from oncemq.message.decoding import Limits
from oncemq.message.envelope import Message
from oncemq.message.expressions import Expression, compile_expression
from oncemq.message.headers import CONTENT_ENCODING
from oncemq.message.registry_header import ID_HEADER, LENGTH
from oncemq.schemas.bodies import BodySchemas

Check = Callable[[Message, Any, str], None]
"""Called with a message, its decoded body and its key; raises UnacceptedSchema."""

RegistryId = int | str
"""A schema's id in a registry: a number, or a GUID where the registry's clients write such."""

_SHOWN: Final = 60
_ESCAPED: Final = re.compile(rb"\\x([0-9a-f]{2})")


class BodyVersion:
    """Reads the version of bodies.

    Args:
        topic: the topic's name, for errors.
        expression: where a message has it; None = it is found by `registry_ids`, or always `without`.
        without: the version of messages that name none; None = these are refused.
        registry_ids: versions by the registry's ids.
        known: which versions there are, for errors, such as `accepted are 1, 2`.

    Raises:
        ValueError: the expression is wrong.
    """

    def __init__(
        self,
        topic: str,
        expression: str | None,
        without: int | None = None,
        registry_ids: Mapping[RegistryId, int] | None = None,
        known: str = "",
    ) -> None:
        self._topic = topic
        self._text = expression or "id of a registry's schema"
        self._without = without
        self._ids = registry_ids
        self._known = f"; {known}" if known else ""
        self._find: Expression = _nothing
        if expression is not None:
            self._find = compile_expression(expression)
        elif registry_ids is not None:
            self._find = _registry_id

    def of(self, message: Message, body: Any, key: str) -> int:
        """Return the version.

        Args:
            message: whose body it is.
            body: decoded.
            key: for errors.

        Raises:
            UnacceptedSchema: there is none.
        """
        found = self._find(message, body)
        if found is None:
            version = self._without
        else:
            version = version_number(found) if self._ids is None else self._ids.get(found)
        if version is None:
            raise UnacceptedSchema(f"message {key!r} of topic {self._topic!r}: {self._why(found)}")
        return version

    def _why(self, found: Any) -> str:
        if found is None:
            return f"it has no {self._text}, which says its version{self._known}"
        if self._ids is None:
            return f"{self._text} {str(found)[:_SHOWN]!r} is no version{self._known}"
        known = ", ".join(str(each) for each in self._ids)
        return (
            f"its schema has the registry's id {found}, which is no known version; registry_ids has {known}"
        )


def _nothing(_message: Message, _body: Any) -> None:
    """Find no version."""


def checking(versions: BodyVersion, schemas: BodySchemas) -> Check:
    """Return what checks each body against the schema of its own version."""
    of, check = versions.of, schemas.check
    return lambda message, body, key: check(of(message, body, key), body, key)


def version_number(value: Any) -> int | None:
    """Return 2 for 2, "2" and "v2"; None for what is no version."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        return None
    digits = value.removeprefix("v")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None


def _registry_id(message: Message, _body: Any) -> RegistryId | None:
    """Return the id in front of the body, or in the message's header, where newer clients write it."""
    if ID_HEADER in message.headers:
        return _id_in(_ESCAPED.sub(_byte, message.headers[ID_HEADER].encode()))
    raw = message.body
    if CONTENT_ENCODING in message.headers:
        try:
            raw = decompress(raw, message.headers[CONTENT_ENCODING], Limits().body_bytes)
        except Undecodable:
            return None
    return _id_in(raw[:LENGTH])


def _id_in(raw: bytes) -> RegistryId | None:
    if len(raw) == LENGTH and raw[0] == 0:
        return int.from_bytes(raw[1:])
    return str(UUID(bytes=raw[1:])) if len(raw) == _GUID and raw[0] == 1 else None


def _byte(found: re.Match[bytes]) -> bytes:
    """Return a byte that is no text, which adapters write as an escape."""
    return bytes.fromhex(found[1].decode())


_GUID: Final = 17
