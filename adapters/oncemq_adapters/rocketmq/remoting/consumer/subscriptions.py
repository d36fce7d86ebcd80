"""The subscriptions of one member, and which of them a message belongs to."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oncemq_adapters.rocketmq.names import TopicOptions
from oncemq_adapters.rocketmq.remoting.consumer.prefetch_window import PrefetchWindow
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import NOTHING, ProcessQueue
from oncemq_adapters.rocketmq_client.names import Selection
from oncemq_adapters.rocketmq_client.properties import ORIGIN_TOPIC, TAGS
from oncemq_adapters.rocketmq_client.protocol import StoredMessage


@dataclass(frozen=True, slots=True)
class Part:
    """One subscription of a member.

    Args:
        options: what the topic is.
        window: what may be in flight.
    """

    options: TopicOptions
    window: PrefetchWindow


class Accepted(NamedTuple):
    """What becomes of pulled messages.

    Args:
        messages: to be delivered.
        left: from which offset on a window's messages stay on the broker.
    """

    messages: Sequence[StoredMessage]
    left: Mapping[PrefetchWindow, int] = NOTHING


class Subscriptions:
    """All subscriptions of a member; what comes by no topic of theirs is a retry of the group.

    Retries of all topics come by one queue. What one of them has no room for is left on the broker, and fetched when
    there is: neither does it fill the memory, nor do the others wait for it.

    Args:
        parts: by the topics' real names.
    """

    def __init__(self, parts: Mapping[str, Part]) -> None:
        self._parts = parts
        self.topics: Sequence[str] = list(parts)
        self.windows: Sequence[PrefetchWindow] = [part.window for part in parts.values()]
        # Where order is strict a queue has one message in flight, so there is nothing to bound.
        self._shared = len(parts) > 1 and not any(part.options.fifo for part in parts.values())

    def windows_of(self, queue: ProcessQueue) -> Sequence[PrefetchWindow]:
        """Return the windows that a queue's messages may go to."""
        part = self._parts.get(queue.topic)
        return [part.window] if part is not None else self.windows

    def has_room(self, queue: ProcessQueue) -> bool:
        """Return whether more of a queue should be pulled."""
        return any(window.has_room and not queue.has_left(window) for window in self.windows_of(queue))

    def behind(self, queue: ProcessQueue) -> Sequence[PrefetchWindow]:
        """Return the windows with room for what was left for them on the broker."""
        return [window for window in self.windows_of(queue) if queue.has_left(window) and window.has_room]

    def part(self, topic: str) -> Part | None:
        """Return the subscription to a topic."""
        return self._parts.get(topic)

    def selection(self, topic: str) -> Selection:
        """Return what is subscribed to of a topic."""
        part = self._parts.get(topic)
        return part.options.selection if part is not None else Selection()

    def accept(self, queue: ProcessQueue, messages: Sequence[StoredMessage]) -> Accepted:
        """Leave out what has another tag than was asked for, and of retries what there is no room for."""
        part = self._parts.get(queue.topic)
        if part is None:
            return self._with_room(queue, messages) if self._shared else Accepted(messages)
        if not part.options.tags:
            return Accepted(messages)
        wanted = part.options.tags
        return Accepted(
            [message for message in messages if message.trouble or message.properties.get(TAGS) in wanted]
        )

    def share(
        self, window: PrefetchWindow, messages: Sequence[StoredMessage], following: int
    ) -> tuple[Sequence[StoredMessage], int]:
        """Return what of a fetched part of the retries is for a window with room for it, and where to go on."""
        mine = [message for message in messages if self.owner(message) is window]
        spare = window.spare
        return (mine, following) if len(mine) <= spare else (mine[:spare], mine[spare].offset)

    def owner(self, retry: StoredMessage) -> PrefetchWindow:
        """Return the window that a retry goes to; the first window gets retries without an owner."""
        part = self._parts.get(retry.properties.get(ORIGIN_TOPIC, ""))
        return part.window if part is not None else self.windows[0]

    def deliver(self, queue: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        """Hand messages to the consumers they are for."""
        part = self._parts.get(queue.topic)
        if part is not None:
            part.window.offer(queue, messages)
            return
        for message in messages:
            origin = message.properties.get(ORIGIN_TOPIC, "")
            if origin not in self._parts:
                message.trouble = (
                    f"it is a retry of topic {origin!r}, which no consumer of this process reads in its group"
                )
            self.owner(message).offer(queue, [message])

    def _with_room(self, queue: ProcessQueue, messages: Sequence[StoredMessage]) -> Accepted:
        taken: Counter[PrefetchWindow] = Counter()
        left: dict[PrefetchWindow, int] = {}
        kept = []
        for message in messages:
            window = self.owner(message)
            if window in left or queue.has_left(window) or taken[window] >= window.spare:
                left.setdefault(window, message.offset)
            else:
                taken[window] += 1
                kept.append(message)
        return Accepted(kept, left)
