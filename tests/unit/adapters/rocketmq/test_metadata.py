"""What RocketMQ says of a delivery is read out of its wire format, or of a proxy's answer."""

import struct
from datetime import UTC, datetime
from ipaddress import ip_address
from types import SimpleNamespace

from oncemq_adapters.rocketmq.metadata import RocketMQMetadata
from oncemq_adapters.rocketmq_client.protocol.message_codec import LONGEST_HEAD

BORN, STORED = datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC)


def milliseconds(moment: datetime) -> int:
    """Return a time as the broker writes it."""
    return round(moment.timestamp() * 1000)


def head(born_host: str, store_host: str, system: int) -> bytes:
    """Return the beginning of a stored message."""
    hosts = [
        ip_address(host).packed + struct.pack(">i", port)
        for host, port in ((born_host, 5000), (store_host, 10911))
    ]
    start = struct.pack(">iiiiiqqiq", 200, 0, 0, 3, 0, 42, 0, system, milliseconds(BORN))
    return (start + hosts[0] + struct.pack(">q", milliseconds(STORED)) + hosts[1] + struct.pack(">iqi", 2, 0, 1) + b"x")[
        :LONGEST_HEAD
    ]  # fmt: skip


def test_hosts_of_both_kinds_are_read() -> None:
    """The producer's address and the broker's may each be one of IPv6."""
    old = RocketMQMetadata(3, 42, BORN, "10.0.0.1:5000", STORED, "10.0.0.2:10911", 2)
    assert RocketMQMetadata.read(head("10.0.0.1", "10.0.0.2", 0)) == old
    new = RocketMQMetadata(3, 42, BORN, "[fe80::1]:5000", STORED, "[fe80::2]:10911", 2)
    assert RocketMQMetadata.read(head("fe80::1", "fe80::2", 48)) == new


def test_a_proxys_answer_is_read() -> None:
    """The same fields; its count of deliveries begins with 1."""
    system = SimpleNamespace(
        queue_id=3,
        queue_offset=42,
        born_timestamp=SimpleNamespace(ToMilliseconds=lambda: milliseconds(BORN)),
        born_host="10.0.0.1:5000",
        store_timestamp=SimpleNamespace(ToMilliseconds=lambda: milliseconds(STORED)),
        store_host="10.0.0.2:10911",
        delivery_attempt=3,
    )
    assert RocketMQMetadata.read(system) == RocketMQMetadata(
        3, 42, BORN, "10.0.0.1:5000", STORED, "10.0.0.2:10911", 2
    )


def test_what_another_broker_says_is_not_read() -> None:
    """A source of RabbitMQ's has none of this."""
    assert RocketMQMetadata.read(SimpleNamespace(exchange="", routing_key="q")) is None
