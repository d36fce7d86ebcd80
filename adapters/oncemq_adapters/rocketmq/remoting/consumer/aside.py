"""What becomes of queues while a member rests that is alone in its group: each keeps its place until it goes on, or leaves.

Moved to the group's retries, as for other members, what is unsettled would come after messages that it was before.
"""

from collections.abc import Callable, Mapping

import structlog

from oncemq.errors import BrokerError
from oncemq_adapters.rocketmq.remoting.admin.offset_requests import committed_offset
from oncemq_adapters.rocketmq.remoting.client.broker_connections import Brokers
from oncemq_adapters.rocketmq.remoting.consumer.offset_store import Offsets
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import OwnedQueue, Progress, QueueKey
from oncemq_adapters.rocketmq.remoting.consumer.queue_locks import Handover


class Aside:
    """Queues that nobody consumes, and of which nothing is out; not for several threads at once.

    Args:
        brokers: of the member.
        group: by its real name.
        offsets: of the group.
        handover: the locks.
        tidy: sees to what is unsettled before a queue is left for good.
    """

    def __init__(
        self,
        brokers: Brokers,
        group: str,
        offsets: Offsets,
        handover: Handover,
        tidy: Callable[[OwnedQueue], None],
    ) -> None:
        self._brokers = brokers
        self._group = group
        self._offsets = offsets
        self._handover = handover
        self._tidy = tidy
        self._queues: list[OwnedQueue] = []
        self._log = structlog.get_logger("oncemq")

    def put(self, queue: OwnedQueue) -> None:
        """Commit and unlock a queue: who joins the group meanwhile may have it."""
        # An answer that is on its way brings nothing any more.
        queue.draining = True
        self._queues.append(queue)
        try:
            self._offsets.commit_now(queue)
            self._handover.release(queue)
        except BrokerError as error:
            self._log.warning("the commit before a rest failed", queue=repr(queue), error=str(error))

    def take(self) -> Mapping[QueueKey, Progress]:
        """Return how far each queue was, to go on there if nobody else was in it."""
        queues, self._queues = self._queues, []
        for queue in queues:
            queue.lose()
        return {queue.key: known for queue in queues if (known := queue.progress()) is not None}

    def leave(self) -> None:
        """Leave for good: what is settled in a queue in which nobody else was does not come again."""
        queues, self._queues = self._queues, []
        for queue in queues:
            try:
                if queue.end_of_settled() > (queue.prefix() or 0):
                    self._leave(queue)
            except BrokerError as error:
                self._log.warning("the last commit of a queue failed", queue=repr(queue), error=str(error))
            finally:
                queue.lose()

    def _leave(self, queue: OwnedQueue) -> None:
        if not self._handover.take(queue):
            return
        connection = self._brokers.get(queue.broker)
        if committed_offset(connection, self._group, queue.topic, queue.number) == queue.committed:
            queue.draining = False
            self._tidy(queue)
            self._offsets.commit_now(queue)
        self._handover.release(queue)
