"""Looks at topics, groups and offsets of a cluster, and makes the topics that are missing."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from oncemq.errors import BrokerError, BrokerRefused, BrokerUnavailable, Unroutable
from oncemq_adapters.kafka.address import LARGEST, Address
from oncemq_adapters.kafka.errors import NOWHERE, error_of, is_denied, refusal, surfaced, told
from oncemq_adapters.kafka.names import Place
from oncemq_adapters.kafka.records import STEPS

T = TypeVar("T")
_NO_GROUP = "oncemq-offsets"
"""A consumer must name one; it is neither asked for nor joined."""
_AGAIN = 0.02
"""Seconds between two questions for a topic that was just made."""
_ROOM = 1024 * 1024
"""Bytes that a copy's headers may add to the largest message of a topic."""


class Administration:
    """One client for questions; every question ends after the address's time for a connection.

    Args:
        address: of the cluster.
        name: what its operators see.
    """

    def __init__(self, address: Address, name: str) -> None:
        self._address = address
        self._denied: KafkaError | None = None
        self._heard = ""
        self._settings: dict[str, Any] = {**address.client(name), "error_cb": self._error}
        self._lock = Lock()
        self._asking: AdminClient | None = None
        self._readers: dict[str, Any] = {}
        self._seconds = address.connect_timeout.total_seconds()
        self._partitions: dict[str, int] = {}
        _ = self._client

    def close(self) -> None:
        """Disconnect; what is asked meanwhile is answered."""
        with self._lock:
            self._asking, self._readers = None, {}

    def connect(self) -> None:
        """Return when a broker has answered.

        Raises:
            BrokerUnavailable: none does.
            BrokerRefused: the login is wrong.
        """
        end = time.monotonic() + self._seconds
        while True:
            try:
                self._client.list_topics("__consumer_offsets", timeout=min(0.5, self._seconds))
            except KafkaException as error:
                self._client.poll(0)
                if self._denied is not None:
                    text = refusal(self._denied, self._address.username, self._address.shown)
                    raise BrokerRefused(text) from None
                if time.monotonic() > end:
                    text = f"no answer from Kafka at {self._address.shown} within {self._seconds:g} s"
                    asks = "" if self._heard or self._address.tls else " – if it expects TLS, write tls: true"
                    raise BrokerUnavailable(f"{text}: {self._heard or _text(error)}{asks}") from error
            else:
                self._denied = None
                return

    def partitions(self, topic: str, *, fresh: bool = False) -> int:
        """Return how many partitions a topic has; 0 if there is no such topic."""
        with self._lock:
            if not fresh and topic in self._partitions:
                return self._partitions[topic]
        try:
            found = self._ask(
                self._client.describe_topics, TopicCollection([topic]), doing=f"asking for {topic!r}"
            )
        except Unroutable:
            return 0
        count = len(found[topic].partitions)
        with self._lock:
            self._partitions[topic] = count
        return count

    def forget(self, topic: str) -> None:
        """Ask again for a topic that is perhaps gone."""
        with self._lock:
            self._partitions.pop(topic, None)

    def prepare(self, place: Place) -> None:
        """Make the topics of a subscription that are missing.

        Raises:
            BrokerRefused: the topic is missing and shall not be made, or the account may not.
        """
        topic = place.topic
        if not self.partitions(topic.name, fresh=True):
            if not topic.create:
                raise BrokerRefused(
                    f"there is no topic {topic.name!r} at Kafka {self._address.shown} – make it, or write create: true"
                )
            self.create(topic.name, topic.partitions or -1, {})
        if self.partitions(place.retries) and self.partitions(place.dead):
            return
        # Asked for only now: an account may be without the right to look at settings.
        # Others that were just made, by us or by another process, are not known to every broker of a cluster at once.
        largest = str(min(LARGEST, self._until_known(partial(self.largest_message, topic.name)) + _ROOM))
        every = {"retention.bytes": "-1", "max.message.bytes": largest}
        if not self.partitions(place.retries):
            kept = str(self._address.retry_retention // timedelta(milliseconds=1))
            self.create(place.retries, len(STEPS), {**every, "retention.ms": kept})
        if not self.partitions(place.dead):
            self.create(place.dead, 1, {**every, "retention.ms": "-1", "cleanup.policy": "compact,delete"})

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Make a topic; one that exists is left as it is. Returns when it can be used."""
        new = NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(settings))
        try:
            self._ask(self._client.create_topics, [new], doing=f"making the topic {topic!r}")
        except BrokerError as error:
            # Another process may have made it since this one looked.
            found = error_of(error.__cause__)
            if found is None or found.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        end = time.monotonic() + self._seconds
        while not self.partitions(topic, fresh=True):
            if time.monotonic() > end:
                raise BrokerUnavailable(
                    f"the topic {topic!r} was made, but no broker of {self._address.shown} knows it"
                )
            time.sleep(_AGAIN)

    def delete(self, topics: Sequence[str]) -> None:
        """Remove topics with their messages; those that are missing are left out."""
        for topic in topics:
            if self.partitions(topic, fresh=True):
                self._ask(self._client.delete_topics, [topic], doing=f"removing the topic {topic!r}")
                self.forget(topic)

    def largest_message(self, topic: str) -> int:
        """Return the bytes of the largest message that a topic takes."""
        return int(self.settings(topic).get("max.message.bytes", 1_048_588))

    def settings(self, topic: str) -> Mapping[str, str]:
        """Return the settings of a topic, the brokers' defaults included."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = self._ask(
            self._client.describe_configs, [resource], doing=f"asking for the settings of {topic!r}"
        )
        return {name: entry.value for name, entry in found[resource].items() if entry.value is not None}

    def description(self, topic: str) -> Any:
        """Return a topic's partitions with their replicas."""
        found = self._ask(
            self._client.describe_topics, TopicCollection([topic]), doing=f"asking for {topic!r}"
        )
        return found[topic]

    def group(self, group: str) -> Any:
        """Return a group's state and members."""
        found = self._ask(
            self._client.describe_consumer_groups, [group], doing=f"asking for the group {group!r}"
        )
        return found[group]

    def spans(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return first offset and end of each partition."""
        reader, count = self._reader(_NO_GROUP), self.partitions(topic)

        def ask() -> dict[int, tuple[int, int]]:
            wanted = ((number, TopicPartition(topic, number)) for number in range(count))
            return {
                number: reader.get_watermark_offsets(each, timeout=self._seconds) for number, each in wanted
            }

        try:
            try:
                return ask()
            except KafkaException as error:
                found = error_of(error)
                if found is None or found.code() not in NOWHERE:
                    raise
                # It keeps for minutes what a broker said that had just come, or was about to go.
                reader.list_topics(topic, timeout=self._seconds)
                return ask()
        except KafkaException as error:
            raise self._surfaced(error, f"asking for the ends of {topic!r}") from error

    def ends(self, topic: str) -> dict[int, int]:
        """Return the end of each partition."""
        return {number: end for number, (_, end) in self.spans(topic).items()}

    def committed(self, group: str, topic: str) -> dict[int, TopicPartition]:
        """Return the committed offsets of a group, with their metadata."""
        wanted = [TopicPartition(topic, number) for number in range(self.partitions(topic))]
        if not wanted:
            return {}
        doing = f"asking for the offsets of group {group!r}"
        try:
            found = self._reader(group).committed(wanted, timeout=self._seconds)
        except KafkaException as error:
            raise self._surfaced(error, doing) from error
        for partition in found:
            if partition.error is not None:
                raise self._surfaced(KafkaException(partition.error), doing)
        return {partition.partition: partition for partition in found if partition.offset >= 0}

    def set_offsets(self, group: str, offsets: Iterable[TopicPartition]) -> None:
        """Commit offsets of a group that has no members."""
        try:
            self._reader(group).commit(offsets=list(offsets), asynchronous=False)
        except KafkaException as error:
            raise self._surfaced(error, f"setting the offsets of group {group!r}") from error

    def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Remove the records before an offset of each partition."""
        wanted = [TopicPartition(topic, number, offset) for number, offset in offsets.items() if offset > 0]
        if wanted:
            self._ask(self._client.delete_records, wanted, doing=f"removing records of {topic!r}")

    def ends_of_new(self, topic: str) -> dict[int, int]:
        """Return the end of each partition of a topic that may have been made a moment ago."""
        return self._until_known(partial(self.ends, topic))

    def _until_known(self, ask: Callable[[], T]) -> T:
        """Return the answer about a topic that exists; it is asked for again while a broker has not heard of it.

        Raises:
            BrokerError: that takes longer than the address's time for a connection.
        """
        end = time.monotonic() + self._seconds
        while True:
            try:
                return ask()
            except (Unroutable, BrokerUnavailable):
                if time.monotonic() > end:
                    raise
                time.sleep(_AGAIN)

    def _reader(self, group: str) -> Any:
        """Return a client that asks for offsets, and joins no group.

        The administration's own client ends the process where a group's coordinator dies while it is asked (librdkafka's issues
        3663 and 4605), and a worker asks for its lag all the time.
        """
        with self._lock:
            if group not in self._readers:
                self._readers[group] = Consumer(
                    self._settings | {"group.id": group, "enable.auto.commit": False}
                )
            return self._readers[group]

    @property
    def _client(self) -> AdminClient:
        with self._lock:
            if self._asking is None:
                try:
                    self._asking = AdminClient(self._settings)
                except KafkaException as error:
                    # Files for TLS are read here.
                    text = f"no client for Kafka {self._address.shown}: {_text(error)}"
                    raise BrokerRefused(text) from None
            return self._asking

    def _surfaced(self, error: Exception, doing: str) -> BrokerError:
        found = surfaced(error, doing, self._address.shown)
        if isinstance(found, BrokerUnavailable):
            # A client goes on asking a broker that has died, minutes after others have taken over.
            self.close()
        return found

    def _ask(self, question: Callable[..., Any], *arguments: Any, doing: str) -> Any:
        try:
            futures = question(*arguments, request_timeout=self._seconds)
            return {asked: future.result(self._seconds + 5) for asked, future in futures.items()}
        except Exception as error:
            self._client.poll(0)
            raise self._surfaced(error, doing) from error

    def _error(self, error: KafkaError) -> None:
        if is_denied(error):
            self._denied = error
        elif error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._heard = told(error)


def _text(error: KafkaException) -> str:
    found = error_of(error)
    return told(found) if found is not None else str(error)
