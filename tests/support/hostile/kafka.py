"""Kafka under hostile producers: keys and headers of any bytes, headers that are there twice or have no value, no body at all."""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, NamedTuple
from uuid import uuid4

from oncemq.contracts.adapter import Adapter
from oncemq.message import headers as names
from oncemq.message.envelope import Message
from oncemq_adapters.kafka import KafkaAdapter
from oncemq_adapters.kafka.address import parse_address
from oncemq_adapters.kafka.producer import Producer
from oncemq_adapters.kafka.records import KAFKA_KEY, NO_VALUE, NOT_BEFORE, Record, parts_of
from support.hostile.brokers import SCOPE, HostileBroker
from support.hostile.odd_messages import FORGED, TEXTS, Odd, odd_body

_OURS = {NOT_BEFORE: b"9" * 400, KAFKA_KEY: b"forged", NO_VALUE: b"1"}
"""What only copies of our own have."""


class Pieces(NamedTuple):
    """What a record is besides its value.

    Args:
        key: any bytes.
        headers: in their order.
        empty: it has no value, whatever its body.
    """

    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    empty: bool


class HostileKafka(HostileBroker):
    """Kafka, whose records are written by a producer without rules."""

    def __init__(self, url: str) -> None:
        self.topic = f"odd-{uuid4().hex[:8]}"
        self.options = {"partitions": 4}
        self._url = url
        self._producer = Producer(parse_address(url, {}), "tests-hostile")

    def adapter(self) -> Adapter:
        """Return an adapter for the server."""
        return KafkaAdapter.build(self._url, {"handover": "2s"}, SCOPE)

    def odd(self, random: Random, number: int) -> Odd:
        """Return any key and headers; one in twenty has no value."""
        found: list[tuple[str, bytes | None]] = [
            (_name(random), _value(random)) for _ in range(random.randrange(6))
        ]
        if found and random.random() < 0.3:
            found.append((found[0][0], _value(random)))
        found += [
            (name, FORGED[name].encode()) for name in random.sample(sorted(FORGED), random.randrange(3))
        ]
        found += random.sample(sorted(_OURS.items()), random.randrange(2))
        random.shuffle(found)
        key = random.choice([None, b"", b"\xff\x00", b"key", random.choice(TEXTS).encode(), bytes(300)])
        return Odd(odd_body(random, number), Pieces(key, found, random.random() < 0.05))

    def send(self, odd: Iterable[Odd]) -> Sequence[Odd]:
        """Publish each; what the broker refuses was never let through."""
        messages = list(odd)
        records = []
        for each in messages:
            pieces: Pieces = each.way
            value = None if pieces.empty else each.body
            records.append(Record(self.topic, pieces.key, value, pieces.headers))
        errors = self._producer.send(records)
        return [each for each, error in zip(messages, errors, strict=True) if error is None]

    def same(self, message: Message) -> Any:
        """Return key, value and headers as their bytes."""
        key, value, headers = parts_of(message)
        own = [pair for pair in headers if not pair[0].startswith(names.PREFIX)]
        return key or None, value, message.message_id, tuple(own)

    def close(self) -> None:
        """Disconnect."""
        self._producer.close(1.0)


def _name(random: Random) -> str:
    return random.choice([*TEXTS[:14], "tenant", "n" * 300, "x-y", f"h{random.randrange(99)}"])


def _value(random: Random) -> bytes | None:
    text = random.choice(TEXTS).encode()
    return random.choice([None, b"", text, b"\xff\xfe", bytes(random.randrange(256) for _ in range(9))])
