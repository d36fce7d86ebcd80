"""The subscriptions of one member, and which of them a message belongs to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oncemq_adapters.rocketmq.names import TopicOptions
from oncemq_adapters.rocketmq.properties import ORIGIN_TOPIC, TAGS
from oncemq_adapters.rocketmq.remoting.owned_queue import OwnedQueue
from oncemq_adapters.rocketmq.remoting.stored import StoredMessage
from oncemq_adapters.rocketmq.remoting.window import Window


@dataclass(frozen=True, slots=True)
class Part:
    """One subscription of a member.

    Args:
        options: what the topic is.
        window: what may be in flight.
    """

    options: TopicOptions
    window: Window


class Parts:
    """All subscriptions of a member; what comes by no topic of theirs is a retry of the group.

    Args:
        parts: by the topics' real names.
    """

    def __init__(self, parts: Mapping[str, Part]) -> None:
        self._parts = parts
        self.topics: Sequence[str] = list(parts)
        self.windows: Sequence[Window] = [part.window for part in parts.values()]

    def windows_of(self, queue: OwnedQueue) -> Sequence[Window]:
        """Return the windows that a queue's messages may go to."""
        part = self._parts.get(queue.topic)
        return [part.window] if part is not None else self.windows

    def has_room(self, queue: OwnedQueue) -> bool:
        """Return whether more of a queue should be pulled."""
        return any(window.has_room for window in self.windows_of(queue))

    def expression(self, topic: str) -> str:
        """Return a topic's subscription expression."""
        part = self._parts.get(topic)
        return part.options.expression if part is not None else "*"

    def accept(self, queue: OwnedQueue, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """Leave out what has another tag than was asked for."""
        part = self._parts.get(queue.topic)
        if part is None or not part.options.tags:
            return messages
        return [one for one in messages if one.trouble or one.properties.get(TAGS) in part.options.tags]

    def deliver(self, queue: OwnedQueue, messages: Sequence[StoredMessage]) -> None:
        """Hand messages to the consumers they are for."""
        part = self._parts.get(queue.topic)
        if part is not None:
            part.window.offer(queue, messages)
            return
        for message in messages:
            origin = message.properties.get(ORIGIN_TOPIC, "")
            owner = self._parts.get(origin)
            if owner is None:
                message.trouble = (
                    f"it is a retry of topic {origin!r}, which nobody here consumes in its group"
                )
            (owner.window if owner is not None else self.windows[0]).offer(queue, [message])
