"""Offsets of a group: read when a queue is taken over, committed while it is consumed."""

from collections.abc import Callable
from datetime import datetime

from oncemq_adapters.rocketmq.errors import Failure
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import ProcessQueue, Progress
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.admin import (
    commit_offset,
    committed_offset,
    first_offset,
)
from oncemq_adapters.rocketmq_client.connections import Brokers
from oncemq_adapters.rocketmq_client.names import LAST
from oncemq_adapters.rocketmq_client.protocol import ANSWER_WITHIN, Fields

COMMIT_AFTER = 200
"""Settled messages of a queue; the most that are redelivered after a crash, besides half a second."""


class Offsets:
    """The offsets of one group.

    Args:
        brokers: whom to ask and tell.
        group: by its real name.
        begin_topic: commits where the group begins in every queue of a topic that it has committed nothing of; raises
            BrokerError if that is not possible now.
    """

    def __init__(
        self, brokers: Brokers, group: str, begin_topic: Callable[[str, str | datetime], None]
    ) -> None:
        self._brokers = brokers
        self._group = group
        self._begin_topic = begin_topic

    def begin(self, queue: ProcessQueue, start: str | datetime, known: Progress | None) -> None:
        """Find where to go on with a queue.

        Args:
            queue: that is ours from now on.
            start: where a group begins that was never here.
            known: how far we were ourselves when we lost it.

        Raises:
            BrokerError: the broker does not say.
        """
        connection = self._brokers.get(queue.broker)
        committed = committed_offset(connection, self._group, queue.topic, queue.number)
        if committed is None and known is not None:
            # The broker has lost committed offsets: a kill loses up to five seconds of them.
            committed = known.committed
            commit_offset(connection, self._group, queue.topic, queue.number, committed)
        if committed is None and start == LAST:
            self._begin_topic(queue.topic, start)
            committed = committed_offset(connection, self._group, queue.topic, queue.number)
        if committed is None:
            at = first_offset(connection, queue.topic, queue.number, start, self._group)
            # At once: the next start must not skip what comes before the first commit, and brokers lose one of
            # two first commits of a group that they get at the same time.
            commit_offset(connection, self._group, queue.topic, queue.number, at)
            queue.begin(at, at, ())
        elif known is not None and known.committed == committed:
            # No other member was here meanwhile: our settled messages need not be redelivered.
            queue.begin(known.prefix, committed, known.settled)
        else:
            queue.begin(committed, committed, ())

    def commit(self, queue: ProcessQueue, *, even_if_same: bool = False) -> None:
        """Tell the broker without waiting."""
        connection = self._brokers.alive().get(queue.broker)
        if connection is None or queue.lost or not queue.commit.begin():
            return
        prefix = queue.prefix()
        if prefix is None or (prefix == queue.committed and not even_if_same):
            queue.commit.end()
        else:
            queue.settled_since_commit = 0

            def done(error: Failure | None, _fields: Fields, _body: bytes) -> None:
                queue.commit.end()
                if error is None:
                    queue.committed = prefix

            connection.submit(codes.UPDATE_OFFSET, self._fields(queue, prefix), done=done)

    def flush(self) -> None:
        """Do nothing: each commit is sent at once."""

    def move(self, queue: ProcessQueue, offset: int) -> None:
        """Have the group go on at another offset.

        Raises:
            BrokerError: it was not committed.
        """
        commit_offset(self._brokers.get(queue.broker), self._group, queue.topic, queue.number, offset)

    def commit_now(self, queue: ProcessQueue) -> None:
        """Tell the broker and wait; also what it knows, since it may lose one of two first commits.

        Raises:
            BrokerError: it was not committed.
        """
        connection = self._brokers.alive().get(queue.broker)
        if connection is None or not queue.commit.begin(ANSWER_WITHIN):
            return
        try:
            prefix = queue.prefix()
            if prefix is not None:
                connection.call(codes.UPDATE_OFFSET, self._fields(queue, prefix))
                queue.committed = prefix
        finally:
            queue.commit.end()

    def _fields(self, queue: ProcessQueue, offset: int) -> Fields:
        return {
            "consumerGroup": self._group,
            "topic": queue.topic,
            "queueId": str(queue.number),
            "commitOffset": str(offset),
        }
