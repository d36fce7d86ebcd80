"""Commits how far a group has come; used by the polling thread of a member alone."""

from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from oncemq_adapters.kafka.assignment import ASK, Assignment
from oncemq_adapters.kafka.errors import error_of
from oncemq_adapters.kafka.tracker import PartitionTracker

_log = structlog.get_logger("oncemq.kafka")
_EVERY = 0.1


class Commits:
    """One commit at a time; what did not arrive, or was not answered in time, is sent again.

    Args:
        consumer: the consumer's name.
        assignment: the partitions of the member.
    """

    def __init__(self, consumer: str, assignment: Assignment) -> None:
        self._consumer = consumer
        self._assignment = assignment
        self._sent_at: float | None = None
        self._awaited: list[TopicPartition] = []
        self._last = 0.0
        self._metadata = True

    def send(self, client: Any, trackers: Iterable[PartitionTracker]) -> None:
        """Commit what has changed, without waiting for the answer; not while an answer is awaited, nor all the time."""
        now = monotonic()
        if now - self._last < _EVERY or (self._sent_at is not None and now - self._sent_at < ASK):
            return
        if self._sent_at is not None:
            self._again(self._awaited)  # its coordinator has died with it
            self._sent_at = None
        offsets = self._offsets(trackers)
        if offsets:
            self._sent_at = self._last = now
            self._awaited = offsets
            client.commit(offsets=offsets, asynchronous=True)

    def send_now(self, client: Any, trackers: Iterable[PartitionTracker]) -> None:
        """Commit, and wait for the answer; without one the messages are delivered again, elsewhere."""
        offsets = self._offsets(trackers)
        if not offsets:
            return
        try:
            client.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            found = error_of(error)
            _log.warning(
                "offsets-not-committed", consumer=self._consumer, error=found.str() if found else str(error)
            )

    def answered(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        """Note the answer to `send`; called by the client."""
        self._sent_at = None
        self._awaited = []
        for partition in partitions:
            failed = error or partition.error
            if failed is None:
                continue
            if failed.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
                self._metadata = False
            self._again([partition])

    def _again(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            tracker = self._assignment.trackers.get((partition.topic, partition.partition))
            if tracker is not None:
                tracker.uncommitted()

    def _offsets(self, trackers: Iterable[PartitionTracker]) -> list[TopicPartition]:
        offsets = []
        for tracker in trackers:
            progress = tracker.progress()
            if progress is not None:
                offset, metadata = progress
                tracker.committed = progress
                offsets.append(
                    TopicPartition(tracker.topic, tracker.number, offset, metadata if self._metadata else "")
                )
        return offsets
