"""AMQP properties that keep the bytes they came as, and that are written back as these bytes."""

from collections.abc import Mapping
from typing import Any

from pika import BasicProperties

from oncemq_adapters.rabbitmq.messages.field_tables import (
    Unreadable,
    short_text,
    shown_headers,
    split_properties,
)

_TEXTS = (
    *("content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id"),
    *("type", "user_id", "app_id", "cluster_id"),
)
_NUMBERS = ("delivery_mode", "priority", "timestamp")


class RawProperties(BasicProperties):  # type: ignore[misc]
    """Properties that are sent as `raw`, whatever their attributes show.

    Args:
        raw: flags and values as AMQP has them.
        fault: why they cannot be used as pika reads them; None = find out.

    Attributes:
        fault: why pika cannot read them; None where it can.
    """

    def __init__(self, raw: bytes, fault: str | None = None) -> None:
        super().__init__()
        self.raw = raw
        self.fault = fault or self._read()
        if self.fault is not None:
            self._show()

    def encode(self) -> list[bytes]:
        """Return the bytes."""
        return [self.raw]

    def _read(self) -> str | None:
        """Let pika read them; return why it cannot."""
        try:
            self.decode(self.raw)
            _refuse_odd_names(self.headers)
        except Exception as error:
            return str(error) or type(error).__name__
        return None

    def _show(self) -> None:
        """Set what can be read; the rest is left out."""
        try:
            found = split_properties(self.raw)
        except Unreadable:
            found = {}
        for name in _TEXTS:
            setattr(self, name, short_text(found[name]) if name in found else None)
        for name in _NUMBERS:
            setattr(self, name, int.from_bytes(found[name], "big") if name in found else None)
        self.headers = shown_headers(found["headers"]) if "headers" in found else None


def _refuse_odd_names(headers: Mapping[Any, Any] | None) -> None:
    for name in headers or ():
        if type(name) is not str:
            raise Unreadable(f"the name of the header {name[:40]!a} is not UTF-8")


def raw_of(properties: Any) -> bytes:
    """Return the bytes that properties came as, or would be sent as."""
    raw = getattr(properties, "raw", None)
    return raw if isinstance(raw, bytes) else b"".join(properties.encode())


def fault_of(properties: Any) -> str | None:
    """Return why properties could not be read; None if they could."""
    return getattr(properties, "fault", None)
