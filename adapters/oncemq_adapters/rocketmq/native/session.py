"""One life of a process with librocketmq: what it holds, until each is settled or all are void."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock
from typing import Any

import structlog

from oncemq.errors import BrokerError
from oncemq_adapters.librocketmq.frames import Frame
from oncemq_adapters.rocketmq.names import retry_topic
from oncemq_adapters.rocketmq.native.inbox import Held, Inbox
from oncemq_adapters.rocketmq.native.process import LibraryProcess
from oncemq_adapters.rocketmq.native.progress import Progress, Queue
from oncemq_adapters.rocketmq.native.whole import PULLED, WholeMessages
from oncemq_adapters.rocketmq.properties import ORIGIN_TOPIC, TAGS, UNIQUE_ID
from oncemq_adapters.rocketmq.remoting.stored import StoredMessage

_AGAIN_AFTER = 0.2


class Session:
    """Starts the process, and hands what it receives to the consumers.

    Args:
        generation: higher than that of every earlier one.
        group: by its real name.
        inboxes: by the topics' real names.
        whole: finds messages.
        progress: of the group's queues.
        tags: which ones are wanted of each topic; empty = all.
        on_end: told that the process is gone.
    """

    def __init__(
        self,
        generation: int,
        group: str,
        inboxes: Mapping[str, Inbox],
        whole: WholeMessages,
        progress: Progress,
        tags: Mapping[str, Collection[str]],
        on_end: Callable[[], None],
    ) -> None:
        self.generation = generation
        self.alive = True
        self._group = group
        self._inboxes = inboxes
        self._whole = whole
        self._progress = progress
        self._tags = tags
        self._lock = Lock()
        self._held: dict[tuple[Queue, int], Held] = {}
        self._read_to: dict[Queue, int] = {}
        self._process = LibraryProcess(self._on_message, on_end)

    def start(self, order: Mapping[str, Any]) -> None:
        """Begin to consume.

        Raises:
            BrokerUnavailable: the library or the process does not work.
        """
        self._process.start(order)

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process.alive

    def finish(self, held: Held) -> bool:
        """Let a message go for good; False if it was void."""
        if not self.alive:
            return False
        self._progress.settled(held.queue, held.stored.offset)
        with self._lock:
            held.finished = True
            number = held.number
            if number is not None:
                del self._held[held.queue, held.stored.offset]
        if number is not None:
            self._process.done([number])
        return True

    def freeze(self) -> None:
        """Make everything void, and have the process say nothing more; `end` follows."""
        self.alive = False
        self._process.freeze()

    def end(self) -> None:
        """Make everything void and kill the process; what it held is delivered again."""
        self.alive = False
        self._process.kill()
        self._progress.forget_open()

    def _on_message(self, frame: Frame) -> None:
        """Take the call of a thread of the library, which waits until we say that its message is finished."""
        topic = retry_topic(self._group) if frame["retry"] else str(frame["topic"])
        number, offset, call = int(frame["queue"]), int(frame["offset"]), int(frame["number"])
        while self.alive:
            try:
                held = self._known(topic, number, offset, str(frame["id"]))
                if held is None:
                    held = self._read(topic, number, offset, str(frame["id"]))
                else:
                    self._read_on(held)
            except BrokerError:
                time.sleep(_AGAIN_AFTER)
                continue
            self._called(held, call)
            return

    def _called(self, held: Held | None, call: int) -> None:
        with self._lock:
            # Without a message: settled before, or deleted because of its age before we read it.
            finished = held is None or held.finished
            if held is not None:
                held.number = call
                if finished:
                    del self._held[held.queue, held.stored.offset]
        if finished:
            self._process.done([call])

    def _known(self, topic: str, number: int, offset: int, unique_id: str) -> Held | None:
        for broker in self._whole.brokers_of(topic, number):
            held = self._held.get((Queue(broker, topic, number), offset))
            if held is not None and held.stored.properties.get(UNIQUE_ID, "") == unique_id:
                return held
        return None

    def _read(self, topic: str, number: int, offset: int, unique_id: str) -> Held | None:
        """Deliver a message and those behind it; return the first."""
        found = self._whole.find(topic, number, offset, unique_id)
        if found is None:
            structlog.get_logger("oncemq").warning(
                "a message that librocketmq holds is on no broker any more: it was deleted for its age, or lost",
                topic=topic,
                queue=number,
                offset=offset,
                id=unique_id,
            )
            return None
        broker, messages = found
        queue = Queue(broker, topic, number)
        first = self._take(queue, messages[0])
        self._take_all(queue, messages[1:])
        self._read_to[queue] = max(messages[-1].offset, self._read_to.get(queue, 0))
        return first

    def _read_on(self, held: Held) -> None:
        """Deliver all that may have been pulled together with a message: the library is silent about it."""
        broker, topic, number = held.queue
        last = self._read_to[held.queue]
        if last < held.stored.offset + PULLED - 1:
            messages = self._whole.after(broker, topic, number, last)
            self._take_all(held.queue, messages)
            if messages:
                self._read_to[held.queue] = messages[-1].offset

    def _take_all(self, queue: Queue, messages: Sequence[StoredMessage]) -> None:
        for stored in messages:
            if self._wanted(queue.topic, stored):
                self._take(queue, stored)

    def _wanted(self, topic: str, stored: StoredMessage) -> bool:
        tags = self._tags.get(topic)
        return not tags or stored.properties.get(TAGS) in tags

    def _take(self, queue: Queue, stored: StoredMessage) -> Held | None:
        place = queue, stored.offset
        if self._progress.is_settled(queue, stored.offset):
            return None
        with self._lock:
            known = self._held.get(place)
        if known is not None:
            return known
        held = self._held[place] = Held(self, queue, stored, self._inbox_of(queue.topic, stored))
        self._progress.received(queue, stored)
        held.inbox.offer(held)
        return held

    def _inbox_of(self, topic: str, stored: StoredMessage) -> Inbox:
        origin = topic if topic in self._inboxes else stored.properties.get(ORIGIN_TOPIC, "")
        inbox = self._inboxes.get(origin)
        if inbox is None:
            stored.trouble = f"it is a retry of topic {origin!r}, which nobody here consumes in its group"
            inbox = next(iter(self._inboxes.values()))
        return inbox
