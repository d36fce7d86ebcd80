"""Metadata of a RocketMQ delivery beside the message: queue, offset, times, hosts, count of tries."""

import struct
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from typing import Any, Self

from oncemq.message.envelope import BrokerMetadata
from oncemq_adapters.rocketmq.properties import moment_of

# size magic crc queue flag offset place sysflag born
_START = struct.Struct(">iiiiiqqiq")
_PORT, _MOMENT, _COUNT = struct.Struct(">i"), struct.Struct(">q"), struct.Struct(">i")
_SENDER_6, _BROKER_6 = 16, 32


@dataclass(frozen=True, slots=True)
class RocketMQMetadata(BrokerMetadata):
    """What RocketMQ says of a delivery; a retry comes from a queue of the group, with that queue's number and offset.

    Args:
        queue_id: the queue's number on its broker.
        queue_offset: the message's place in it.
        born_at: when the producer sent it, by its clock, aware; None for nonsense.
        born_host: the producer's address, `ip:port`; a proxy's where it came through one.
        stored_at: when the broker stored it, by its clock, aware; None for nonsense.
        store_host: the broker's address.
        reconsume_times: how often it was given back before, by RocketMQ's own count.
    """

    queue_id: int
    queue_offset: int
    born_at: datetime | None
    born_host: str
    stored_at: datetime | None
    store_host: str
    reconsume_times: int

    @classmethod
    def read(cls, source: Any) -> Self | None:
        """Return the metadata in the head of a stored message, or in the system properties of one from a proxy."""
        if isinstance(source, bytes):
            return cls._of_head(source)
        if hasattr(source, "queue_offset"):
            return cls._of_system(source)
        return None

    @classmethod
    def _of_head(cls, head: bytes) -> Self:
        _, _, _, queue, _, offset, _, system, born = _START.unpack_from(head, 0)
        born_host, at = _host(head, _START.size, six=bool(system & _SENDER_6))
        (stored,) = _MOMENT.unpack_from(head, at)
        store_host, at = _host(head, at + _MOMENT.size, six=bool(system & _BROKER_6))
        (count,) = _COUNT.unpack_from(head, at)
        return cls(queue, offset, moment_of(born), born_host, moment_of(stored), store_host, count)

    @classmethod
    def _of_system(cls, system: Any) -> Self:
        return cls(
            system.queue_id,
            system.queue_offset,
            moment_of(system.born_timestamp.ToMilliseconds()),
            system.born_host,
            moment_of(system.store_timestamp.ToMilliseconds()),
            system.store_host,
            max(0, system.delivery_attempt - 1),
        )


def _host(data: bytes, at: int, *, six: bool) -> tuple[str, int]:
    """Return an address as text, and where it ends."""
    end = at + (16 if six else 4)
    (port,) = _PORT.unpack_from(data, end)
    host = str(ip_address(data[at:end]))
    return (f"[{host}]:{port}" if six else f"{host}:{port}"), end + _PORT.size
