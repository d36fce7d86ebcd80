"""Where a member begins in a partition that it gets; the client is a double, as no broker answers wrongly on request."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from oncemq.contracts.adapter import Sink, Subscription
from oncemq_adapters.kafka.address import parse_address
from oncemq_adapters.kafka.assignment import Window
from oncemq_adapters.kafka.group_member import GroupMember
from oncemq_adapters.kafka.names import place_of

TOPIC = "orders"


class Client:
    """Answers questions about the group's offsets, the first time with an error for one partition."""

    def __init__(self, error: KafkaError) -> None:
        self._errors: list[KafkaError | None] = [error, None]
        self.assigned: list[int] = []
        self.resumed: list[int] = []

    def committed(self, partitions: Sequence[TopicPartition], timeout: float) -> list[Any]:
        """Return 41 and 42 as what was committed."""
        assert timeout > 0
        error = self._errors.pop(0) if self._errors else None
        return [_answer(partition, 41 + partition.partition, error) for partition in partitions]

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
        """Return the ends of a partition."""
        assert (partition.topic, timeout > 0) == (TOPIC, True)
        return 0, 1000

    def offsets_for_times(self, partitions: Sequence[TopicPartition], timeout: float) -> list[TopicPartition]:
        """Return that nothing is so young."""
        assert timeout > 0
        return [TopicPartition(partition.topic, partition.partition, -1) for partition in partitions]

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Note where reading begins."""
        self.assigned += [partition.offset for partition in partitions]

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Note what is not paused any more."""
        self.resumed += [partition.partition for partition in partitions]


class Outdated(Client):
    """Has committed nothing, and does not know a partition that was added, until it asks what there is."""

    def __init__(self) -> None:
        super().__init__(KafkaError(KafkaError._UNKNOWN_PARTITION))
        self.asked: list[str] = []

    def committed(self, partitions: Sequence[TopicPartition], timeout: float) -> list[Any]:
        """Return that nothing was committed."""
        return [_Committed(partition.partition, OFFSET_INVALID, None) for partition in partitions]

    def list_topics(self, topic: str, timeout: float) -> None:
        """Note the question."""
        assert timeout > 0
        self.asked.append(topic)

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
        """Return the ends of a partition that is known."""
        if not self.asked:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        return super().get_watermark_offsets(partition, timeout)


class _Committed:
    """A partition as the client returns it; its own class takes no error."""

    def __init__(self, partition: int, offset: int, error: KafkaError | None) -> None:
        self.topic, self.partition, self.offset, self.error = TOPIC, partition, offset, error
        self.metadata = None


def _answer(partition: TopicPartition, offset: int, error: KafkaError | None) -> _Committed:
    failed = error is not None and partition.partition == 1
    return _Committed(partition.partition, OFFSET_INVALID if failed else offset, error if failed else None)


def test_an_offset_that_is_not_known_is_asked_for_again() -> None:
    """Beginning elsewhere would skip what waits: with `start:` at a time that nothing is younger than, everything."""
    client = Client(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))
    member()._on_assign(client, [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)])
    assert client.assigned == [41, 42]


def test_a_partition_that_comes_back_is_not_paused() -> None:
    """The client keeps a partition paused over its loss; the member that gets it again would never receive of it."""
    client = Client(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))
    member()._on_assign(client, [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)])
    assert client.resumed == [0, 1]


def test_a_partition_that_the_client_does_not_know_is_looked_up() -> None:
    """By itself it would ask half a minute later, and the whole member waits; a start gave up before that."""
    client, mine = Outdated(), member()
    mine._client = client
    mine._on_assign(client, [TopicPartition(TOPIC, 3)])
    assert (client.asked, client.assigned) == ([TOPIC], [1000])


def member() -> GroupMember:
    """Return one that begins at a time for which there is nothing so young."""
    subscription = Subscription(
        "pay", TOPIC, "shop", {"start": datetime(2026, 1, 1, tzinfo=UTC).isoformat()}, 10
    )
    return GroupMember(
        parse_address("kafka://nowhere", {}),
        subscription,
        place_of(subscription),
        cast(Sink, None),
        "shop",
        Window(10),
        retries=False,
    )
