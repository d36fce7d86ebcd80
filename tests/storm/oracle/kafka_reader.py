"""Reads a Kafka for the oracle, by a plain client: records of a topic, and how far a group has come."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

OFFSETS = "__consumer_offsets"
_PATIENCE = 20.0
"""Seconds for one answer."""


class Found(NamedTuple):
    """One record."""

    body: bytes
    headers: Mapping[str, str]


class Names(NamedTuple):
    """The topics of a group on a topic, as they are called on the server."""

    topic: str
    group: str
    retries: str
    dead: str


class Reader:
    """Looks at a cluster; joins no group.

    Args:
        url: as the app has it.

    Attributes:
        settings: of any client, without its group.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._prefix = parse_qs(parts.query).get("namespace", [""])[0]
        self.settings = {
            "bootstrap.servers": parts.netloc.rpartition("@")[2],
            "security.protocol": "SASL_PLAINTEXT" if parts.username else "PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": unquote(parts.username or ""),
            "sasl.password": unquote(parts.password or ""),
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 2,
        }

    def names(self, group: str, topic: str) -> Names:
        """Return what is called how."""
        topic, group = self._prefix + topic, self._prefix + group
        own = f"oncemq.{group}.{topic}"
        return Names(topic, group, f"{own}.retries", f"{own}.dead-letters")

    def messages(self, topic: str) -> Iterator[Found]:
        """Yield every record that has a value; none if there is no such topic."""
        with closing(self._client("oracle")) as client:
            for partition in _partitions(client, topic):
                yield from self._records(client, partition)

    def leader(self, topic: str, partition: int) -> int:
        """Return the node that leads a partition."""
        with closing(self._client("oracle")) as client:
            return int(
                client.list_topics(topic, timeout=_PATIENCE).topics[topic].partitions[partition].leader
            )

    def partition_of(self, group: str) -> int:
        """Return the partition of the offsets that is a group's, by Java's hash of its name; its leader is the coordinator."""
        number = 0
        for character in group:
            number = (31 * number + ord(character)) & 0xFFFFFFFF
        with closing(self._client("oracle")) as client:
            return (number & 0x7FFFFFFF) % len(_partitions(client, OFFSETS))

    def depth(self, group: str, topic: str) -> int:
        """Return how many records a group has not passed."""
        with closing(self._client(group)) as client:
            partitions = _partitions(client, topic)
            if not partitions:
                return 0
            committed = client.committed(partitions, timeout=_PATIENCE)
            count = 0
            for partition in committed:
                if partition.error is not None:
                    raise KafkaException(partition.error)
                first, end = client.get_watermark_offsets(partition, timeout=_PATIENCE)
                count += max(0, end - max(first, partition.offset))
            return count

    def _records(self, client: Any, partition: TopicPartition) -> Iterator[Found]:
        first, end = client.get_watermark_offsets(partition, timeout=_PATIENCE)
        client.assign([TopicPartition(partition.topic, partition.partition, first)])
        at = first
        while at < end:
            raw = client.poll(_PATIENCE)
            if raw is None:
                raise OSError(f"Kafka does not answer for {partition.topic!r}")
            if (error := raw.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return
                raise KafkaException(error)
            at = raw.offset() + 1
            if raw.value() is not None:
                yield Found(raw.value(), {name: (text or b"").decode() for name, text in raw.headers() or ()})

    def _client(self, group: str) -> Any:
        return Consumer({**self.settings, "group.id": group})


def _partitions(client: Any, topic: str) -> list[TopicPartition]:
    found = client.list_topics(topic, timeout=_PATIENCE).topics[topic]
    return [] if found.error is not None else [TopicPartition(topic, number) for number in found.partitions]
