"""Makes the copies of a message that travel on: everything as it came, our headers over it, sealed where that is too much."""

import contextlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from pika import BasicProperties

from oncemq.message import headers as names
from oncemq.message.envelope import Message
from oncemq.message.sealed import CONTENT_TYPE, seal, unseal
from oncemq_adapters.rabbitmq.messages.field_tables import (
    Field,
    Unreadable,
    join_properties,
    join_table,
    split_properties,
    split_table,
    text_field,
)
from oncemq_adapters.rabbitmq.messages.properties import PERSISTENT, is_history
from oncemq_adapters.rabbitmq.messages.raw_properties import RawProperties, raw_of
from oncemq_adapters.rabbitmq.metadata import EXCHANGE, ROUTING_KEY

MOST_BYTES: Final = 131_072 - 8 - 12
"""Of a copy's properties: a frame of the broker's default size without its own bytes and those before the properties."""

_KEPT: Final = names.KEPT_BY_REPLAY | {EXCHANGE, ROUTING_KEY}
_RAW: Final = "properties"
_OUTSIDE: Final = ("message_id", "timestamp", "priority")
_NO_TABLE: Final = bytes(4)
NO_PROPERTIES: Final = bytes(2)
"""As AMQP writes them."""


class Copy(NamedTuple):
    """What is published.

    Args:
        properties: ours.
        body: the original's, or one that holds the original whole.
    """

    properties: Any
    body: bytes


def next_hop(raw: bytes, body: bytes, added: Mapping[str, str], username: str) -> Copy:
    """Return the copy: everything as it was, `added` headers over it, no history but that.

    An expiration would let the copy vanish from a dead-letter queue, and a foreign user id is refused by the broker.

    Args:
        raw: the original's properties.
        body: the original's.
        added: headers of ours.
        username: the only user id that the broker takes from us.
    """
    for headers in names.shorter(added):
        written = _written(raw, headers, username)
        if written is None:
            break
        if len(written) <= MOST_BYTES:
            properties = RawProperties(written)
            if properties.fault is not None:
                # Another client that reads the queue would fail as this consumer did.
                break
            return Copy(properties, body)
    return _sealed(raw, body, added)


def replayed(raw: bytes, body: bytes, username: str) -> Copy:
    """Return a dead letter as it starts again: without our attempts and causes."""
    written = _rewritten(raw, [], username)
    return Copy(RawProperties(raw if written is None else written), body)


def opened(properties: Any, body: bytes) -> tuple[Any, bytes]:
    """Return the properties and the body of the original, where the body holds it; else what was given.

    Our own headers of the outer message are then those of the inner one.
    """
    if names.SEALED not in (properties.headers or {}):
        return properties, body
    found = unseal(body)
    try:
        inner = RawProperties(b64decode(found[0][_RAW])) if found else None
    except (KeyError, TypeError, ValueError):
        inner = None
    if found is None or inner is None:
        return properties, body
    ours = {name: text for name, text in properties.headers.items() if name.startswith(names.PREFIX)}
    ours.pop(names.SEALED)
    inner.headers = {**(inner.headers or {}), **ours}
    return inner, found[1]


def burial(message: Message, added: Mapping[str, str], now: datetime, app: str, username: str) -> Copy:
    """Return a copy of a message that was kept elsewhere."""
    published = message.published_at or now
    more = {name: text for name, text in message.headers.items() if name in names.HISTORY} | dict(added)
    if message.keys:
        more.setdefault(names.KEY, message.keys[0])
    more.setdefault(names.PUBLISHED_AT, published.isoformat())
    return next_hop(message.raw or _made(message, published, app), message.body, more, username)


def _made(message: Message, published: datetime, app: str) -> bytes:
    """Return properties for a message that another adapter, or an earlier version, has kept as text."""
    headers = dict(message.headers)
    content_type, encoding = headers.pop(names.CONTENT_TYPE, None), headers.pop(names.CONTENT_ENCODING, None)
    made = BasicProperties(
        content_type=content_type,
        content_encoding=encoding,
        delivery_mode=PERSISTENT,
        message_id=message.message_id,
        timestamp=int(published.timestamp()),
        app_id=app,
    )
    found = split_properties(raw_of(made))
    table = join_table(text_field(name, text) for name, text in headers.items())
    return join_properties({**found, "headers": table})


def _written(raw: bytes, added: Mapping[str, str], username: str) -> bytes | None:
    return _rewritten(raw, [text_field(name, text) for name, text in added.items()], username)


def _rewritten(raw: bytes, added: list[Field], username: str) -> bytes | None:
    """Return the properties of a copy; None if the original's cannot be separated."""
    try:
        found = split_properties(raw)
        table = split_table(found.get("headers", _NO_TABLE))
    except Unreadable:
        return None
    taken = {field.name for field in added}
    kept = [field for field in table if field.name not in taken and not _is_ours(field.name)]
    headers = [*kept, *added]
    found["headers"] = join_table(headers)
    if not headers:
        del found["headers"]
    found["delivery_mode"] = bytes((PERSISTENT,))
    found.pop("expiration", None)
    if found.get("user_id", b"")[1:] != username.encode():
        found.pop("user_id", None)
    return join_properties(found)


def _is_ours(name: bytes) -> bool:
    text = name.decode(errors="backslashreplace")
    return is_history(text) or (text.startswith(names.PREFIX) and text not in _KEPT)


def _sealed(raw: bytes, body: bytes, added: Mapping[str, str]) -> Copy:
    found: dict[str, bytes] = {}
    with contextlib.suppress(Unreadable):
        found = split_properties(raw)
    kept = {name: found[name] for name in _OUTSIDE if name in found}
    outer = BasicProperties(content_type=CONTENT_TYPE, delivery_mode=PERSISTENT)
    fields = [text_field(name, text) for name, text in {**added, names.SEALED: "1"}.items()]
    outside = {**split_properties(raw_of(outer)), "headers": join_table(fields)}
    return Copy(RawProperties(join_properties(outside | kept)), seal({_RAW: b64encode(raw).decode()}, body))
