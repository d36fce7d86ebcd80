"""Lists, replays and removes a group's dead letters by reading their topic, without a group.

A dead letter's key is its id. What was handled gets a record without a value for the same key: the topic is compacted, so
that the broker removes both in time; what is handled at the topic's beginning is removed at once.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from oncemq.contracts.adapter import DeadLetter
from oncemq.errors import BrokerError, BrokerUnavailable
from oncemq.message import headers as names
from oncemq_adapters.kafka.address import Address
from oncemq_adapters.kafka.administration import Administration
from oncemq_adapters.kafka.errors import translated
from oncemq_adapters.kafka.names import Place
from oncemq_adapters.kafka.records import Original, Record, buried, message_of, original_of, replayed_record

Send = Callable[[Sequence[Record]], Sequence[BrokerError | None]]


class _Letter(NamedTuple):
    id: str
    offset: int
    timestamp: int
    parts: Original


class DeadLetters:
    """The dead letters of one subscription.

    Args:
        address: of the cluster.
        administration: of the same.
        place: the subscription's topics.
        send: publishes, and returns an error or None for each record.
    """

    def __init__(self, address: Address, administration: Administration, place: Place, send: Send) -> None:
        self._address = address
        self._administration = administration
        self._place = place
        self._send = send

    def letters(self, limit: int) -> Iterator[DeadLetter]:
        """Yield the letters, oldest first."""
        topic = self._place.topic.topic
        for letter in [*self._read()[0].values()][:limit]:
            parts = buried(letter.parts)
            message = message_of(topic, parts, letter.timestamp, letter.id, from_group=True)
            yield DeadLetter(letter.id, message, names.time_of(message.headers, names.DEAD_AT))

    def replay(self, ids: Sequence[str]) -> int:
        """Send these to the group again, each confirmed before it is removed; returns how many."""
        letters = self._named(ids)
        errors = self._send([replayed_record(self._place.retries, letter.parts) for letter in letters])
        self._remove([letter for letter, error in zip(letters, errors, strict=True) if error is None])
        return _count(errors)

    def purge(self, ids: Sequence[str]) -> int:
        """Remove these; returns how many."""
        return self._remove(self._named(ids))

    def _named(self, ids: Sequence[str]) -> list[_Letter]:
        letters, _ = self._read()
        return [letters[wanted] for wanted in dict.fromkeys(ids) if wanted in letters]

    def _remove(self, letters: Sequence[_Letter]) -> int:
        errors = self._send([Record(self._place.dead, letter.id.encode(), None, [], 0) for letter in letters])
        done = _count(errors)
        left, end = self._read()
        end = min((letter.offset for letter in left.values()), default=end)
        self._administration.delete_before(self._place.dead, {0: end})
        return done

    def _read(self) -> tuple[dict[str, _Letter], int]:
        """Return the letters that were not handled, and the end up to which was read."""
        first, end = self._administration.spans(self._place.dead).get(0, (0, 0))
        found: dict[str, _Letter] = {}
        if first >= end:
            return found, end
        for raw in self._records(first, end):
            key = (raw.key() or b"").decode(errors="replace")
            if raw.value() is None:
                found.pop(key, None)
            elif key:
                # A letter that was published twice has one id, and counts once.
                found.setdefault(key, _Letter(key, raw.offset(), raw.timestamp()[1], original_of(raw)))
        return found, end

    def _records(self, first: int, end: int) -> Iterator[Any]:
        settings = self._address.client("oncemq-dead-letters") | {
            # It joins no group; the name is one for which the account has rights.
            "group.id": self._place.group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(settings)
        deadline = time.monotonic() + self._address.connect_timeout.total_seconds()
        try:
            consumer.assign([TopicPartition(self._place.dead, 0, first)])
            while True:
                raw: Any = consumer.poll(0.2)
                if raw is None:
                    if time.monotonic() > deadline:
                        raise BrokerUnavailable(f"no answer from Kafka at {self._address.shown}")
                    continue
                error = raw.error()
                if error is None:
                    deadline = time.monotonic() + self._address.connect_timeout.total_seconds()
                    yield raw
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise translated(error, f"reading {self._place.dead!r}", self._address.shown)
                if error is not None or raw.offset() + 1 >= end:
                    return
        finally:
            consumer.close()


def _count(errors: Sequence[BrokerError | None]) -> int:
    return sum(1 for error in errors if error is None)
