"""Metadata of a RabbitMQ delivery beside the message: exchange, routing key, delivery tag."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Self

from pika.spec import Basic

from oncemq.message.envelope import BrokerMetadata, Message

EXCHANGE: Final = "oncemq-rabbitmq-exchange"
ROUTING_KEY: Final = "oncemq-rabbitmq-routing-key"
"""Headers of copies, which come back through the default exchange: what the original was published with."""

ROUTING_KEY_HEADER: Final = "routing_key"
"""Where consumers whose topic has `routing_keys` find the routing key of a message."""


@dataclass(frozen=True, slots=True)
class RabbitMQMetadata(BrokerMetadata):
    """What RabbitMQ says of a delivery.

    Args:
        exchange: that the message was published to; empty for the default exchange. A retry has that of its first delivery.
        routing_key: with which it was published; of a retry the same.
        delivery_tag: the channel's number for it.
        redelivered: the broker has delivered it before.
    """

    exchange: str
    routing_key: str
    delivery_tag: int
    redelivered: bool

    @classmethod
    def read(cls, source: Any) -> Self | None:
        """Return the metadata in pika's method."""
        if isinstance(source, _OfCopy):
            found = source.method
            return cls(source.exchange, source.routing_key, found.delivery_tag, found.redelivered)
        if not isinstance(source, Basic.Deliver):
            return None
        exchange, routing_key = _text(source.exchange), _text(source.routing_key)
        return cls(exchange, routing_key, source.delivery_tag, source.redelivered)


class _OfCopy(NamedTuple):
    """The method of a copy, and what the original was published with."""

    method: Any
    exchange: str
    routing_key: str


def source_of(method: Any, properties: Any, *, from_group: bool) -> Any:
    """Return what `RabbitMQMetadata` reads: of a copy what its headers say of the original, too."""
    headers = properties.headers
    if not from_group or not headers or EXCHANGE not in headers:
        return method
    return _OfCopy(method, _text(headers[EXCHANGE]), _text(headers.get(ROUTING_KEY, "")))


def origin_headers(message: Message) -> Mapping[str, str]:
    """Return the headers by which a copy tells what the original was published with; none for the default exchange."""
    source = message.metadata_source
    found = RabbitMQMetadata.read(source) if source is not None else None
    return {EXCHANGE: found.exchange, ROUTING_KEY: found.routing_key} if found and found.exchange else {}


def with_routing_key(message: Message) -> Message:
    """Return the message with the header `routing_key`: with which its original was published, whatever a producer wrote there."""
    found = RabbitMQMetadata.read(message.metadata_source)
    key = found.routing_key if found is not None else ""
    return replace(message, headers={**message.headers, ROUTING_KEY_HEADER: key})


def _text(value: Any) -> str:
    """Return a short string as text; pika leaves bytes that are no UTF-8 as they are."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
