"""What follows when deliveries are settled: a commit now and then, and more for the room that they leave."""

from collections.abc import Callable, Mapping
from typing import Any

from oncemq_adapters.rocketmq.remoting.client.timer_thread import Steward
from oncemq_adapters.rocketmq.remoting.consumer.offset_store import COMMIT_AFTER, Offsets
from oncemq_adapters.rocketmq.remoting.consumer.prefetch_window import Window
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import OwnedQueue
from oncemq_adapters.rocketmq.remoting.consumer.puller import Puller


class Room:
    """Looks after the room of one member's windows, on a thread of its own.

    Whoever settles has the next messages to run: he asks for more at most, and neither commits nor hands over what
    waited for room.

    Args:
        name: of the thread.
        queues: the member's, by their keys.
        offsets: to commit.
        puller: to get more.
        idle: told that something of a paused window was settled.
    """

    def __init__(
        self,
        name: str,
        queues: Mapping[Any, OwnedQueue],
        offsets: Offsets,
        puller: Puller,
        idle: Callable[[], object],
    ) -> None:
        self.steward = Steward(name)
        self._queues = queues
        self._offsets = offsets
        self._puller = puller
        self._idle = idle

    def settled(self, window: Window, queue: OwnedQueue, count: int) -> None:
        """Follow up on settled deliveries."""
        if window.leave(queue, count) or queue.settled_since_commit >= COMMIT_AFTER:
            self.steward.at(0, self._go_on, window, queue)
        else:
            self.more(window, queue)

    def more(self, window: Window, queue: OwnedQueue) -> None:
        """Pull if there is room again."""
        if window.paused:
            self._idle()
        elif window.has_room:
            # Others of the consumer's queues may have found no room either.
            for other in list(self._queues.values()):
                if other is queue or not other.pulling or other.has_left(window):
                    self._puller.pull(other)

    def _go_on(self, window: Window, queue: OwnedQueue) -> None:
        # First what costs time if it waits: a commit may find a connection that takes nothing for seconds.
        window.flush()
        self.more(window, queue)
        if queue.settled_since_commit >= COMMIT_AFTER:
            self._offsets.commit(queue)
