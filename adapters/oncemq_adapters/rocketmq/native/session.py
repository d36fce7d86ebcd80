"""One run of a process with librocketmq: its messages, until each is settled or all are void.

Messages are read and handled before the library reaches them. It receives the finished ones, and then lets them
pass; only a callback of a message that is not finished asks, and waits.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from threading import Lock
from typing import Any

import structlog

from oncemq_adapters.librocketmq.frames import Identity
from oncemq_adapters.librocketmq.remembered import Remembered
from oncemq_adapters.rocketmq.errors import FAILURES
from oncemq_adapters.rocketmq.native.inbox import Held, Inbox
from oncemq_adapters.rocketmq.native.message_reader import FAR, PULLED, WholeMessages
from oncemq_adapters.rocketmq.native.process import LibraryProcess
from oncemq_adapters.rocketmq.native.progress import Progress, Queue
from oncemq_adapters.rocketmq_client.connections import TimerThread
from oncemq_adapters.rocketmq_client.names import retry_topic
from oncemq_adapters.rocketmq_client.properties import (
    ORIGIN_TOPIC,
    TAGS,
    UNIQUE_ID,
)
from oncemq_adapters.rocketmq_client.protocol import StoredMessage

_MOST = 64


class Ranges:
    """A set of offsets that is kept as stretches; beyond a number of them the lowest are forgotten.

    Not for several threads at once.
    """

    def __init__(self) -> None:
        self._stretches: list[range] = []

    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and any(offset in stretch for stretch in self._stretches)

    def add(self, first: int, last: int) -> None:
        """Add all from `first` to `last`, both included."""
        apart = [stretch for stretch in self._stretches if stretch.start > last + 1 or stretch.stop < first]
        touching = [stretch for stretch in self._stretches if stretch not in apart]
        start = min([first, *(stretch.start for stretch in touching)])
        joined = range(start, max([last + 1, *(stretch.stop for stretch in touching)]))
        apart.insert(bisect_right(apart, joined.start, key=lambda stretch: stretch.start), joined)
        self._stretches = apart[-_MOST:]


RECENT = 1024
"""Half of the finished messages that are kept at most: a callback may ask for one while its pass is on the way."""

_AGAIN_AFTER = 0.2
_SAID_AFTER = 5
"""Tries; a broker that restarts is no news."""


class Session:
    """Starts the process, and hands what it receives to the consumers.

    Args:
        generation: higher than that of every earlier one.
        group: by its real name.
        inboxes: by the topics' real names.
        whole: finds messages.
        progress: of the group's queues.
        tags: which ones are wanted of each topic; empty = all.
        on_end: called when the process is gone.
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
        self._retries = retry_topic(group)
        self._inboxes = inboxes
        self._whole = whole
        self._progress = progress
        self._tags = tags
        self._lock = Lock()
        self._held: dict[tuple[Queue, int], Held] = {}
        self._unlike: dict[Identity, set[tuple[Queue, int]]] = {}
        self._recent: Remembered[tuple[Queue, Identity], bool] = Remembered(RECENT)
        self._read_to: dict[Queue, int] = {}
        self._reached: dict[Queue, int] = {}
        self._taken: dict[Queue, Ranges] = {}
        self._pulling: set[Queue] = set()
        self._once_more: set[Queue] = set()
        self._queues: list[Queue] = []
        self._indexes: dict[Queue, int] = {}
        self._aside = TimerThread("oncemq-librocketmq-aside")
        self._process = LibraryProcess(self._on_message, self._on_reached, on_end)

    def start(self, order: Mapping[str, Any]) -> None:
        """Begin to consume.

        Raises:
            BrokerUnavailable: the library or the process does not work.
        """
        self._aside.start()
        self._process.start(order)

    @property
    def process_end(self) -> str:
        """How the process ended, in words."""
        return self._process.end

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process.alive

    def finish(self, many: Sequence[Held]) -> bool:
        """Note that messages are gone for good; False if they were void. `let_pass` has to follow."""
        if not self.alive:
            return False
        self._progress.settled([(held.queue, held.stored.offset) for held in many])
        with self._lock:
            for held in many:
                del self._held[held.queue, held.stored.offset]
                self._recent.note((held.queue, self._identity(held.queue, held.stored)), True)
        return True

    def let_pass(self, many: Sequence[Held]) -> None:
        """Have the library finish messages, now or when it comes to them."""
        self._tell([(held.queue, held.stored) for held in many])

    def freeze(self) -> None:
        """Make everything void, and have the process say nothing more; `end` follows."""
        self.alive = False
        self._process.freeze()

    def end(self) -> None:
        """Make everything void and kill the process; its messages are redelivered."""
        self.alive = False
        self._aside.stop(0)
        self._process.kill()
        # A thread that is taking messages has finished, or takes no more.
        with self._lock:
            self._progress.forget_open()

    def _tell(self, finished: Sequence[tuple[Queue, StoredMessage]]) -> None:
        self._process.finished(
            [(*self._identity(queue, stored), self._index(queue)) for queue, stored in finished]
        )
        if self._unlike:
            for identity in self._freed({(queue, stored.offset) for queue, stored in finished}):
                self._process.answer(identity)

    def _freed(self, finished: Collection[tuple[Queue, int]]) -> Sequence[Identity]:
        """Return the callbacks that no pass fits, and of which all that they may be waiting for is finished now."""
        with self._lock:
            for places in self._unlike.values():
                places.difference_update(finished)
            freed = [identity for identity, places in self._unlike.items() if not places]
            for identity in freed:
                del self._unlike[identity]
        return freed

    def _identity(self, queue: Queue, stored: StoredMessage) -> Identity:
        # As the library's process tells it: anybody may have left the mark of a retry in the properties.
        topic = "" if stored.properties.get(ORIGIN_TOPIC) else queue.topic
        return topic, queue.number, stored.offset, stored.stored, stored.properties.get(UNIQUE_ID, "")

    def _index(self, queue: Queue) -> int:
        """Return our number of a queue, which librocketmq cannot tell from those of other brokers."""
        index = self._indexes.get(queue)
        if index is None:
            with self._lock:
                index = self._indexes.setdefault(queue, len(self._queues))
                if index == len(self._queues):
                    self._queues.append(queue)
        return index

    def _on_reached(self, reached: Iterable[tuple[int, int]]) -> None:
        """Read on where callbacks have let messages pass."""
        for index, offset in reached:
            self._read_on(self._queues[index], offset)

    def _on_message(self, identity: Identity) -> None:
        """Take the call of a thread of the library, which waits until we say that its message is finished."""
        self._look_up(identity, 0)

    def _look_up(self, identity: Identity, tries: int) -> None:
        """Find a message and have it delivered; one that cannot be found now waits aside, and is never finished."""
        if not self.alive:
            return
        try:
            finished = self._finished(identity)
        except FAILURES as error:
            if tries == _SAID_AFTER:
                structlog.get_logger("oncemq").warning(
                    "message held by librocketmq cannot be read yet, tried again",
                    topic=identity[0],
                    queue=identity[1],
                    offset=identity[2],
                    error=str(error),
                )
            self._aside.at(_AGAIN_AFTER, self._look_up, identity, tries + 1)
            return
        if finished:
            self._process.answer(identity)

    def _finished(self, identity: Identity) -> bool:
        """Return whether a message is finished for good; if not, have it delivered, and let pass when it is."""
        name, number, offset, _, _ = identity
        topics = (name,) if name else (self._retries, *self._inboxes)
        came_back: set[Queue] = set()
        for queue in self._whole.queues_of(topics, number):
            with self._lock:
                held = self._held.get((queue, offset))
                if self._recent.take((queue, identity)):
                    return True
                if offset in self._taken.get(queue, ()) and self._progress.is_settled(queue, offset):
                    came_back.add(queue)
            if held is not None and self._identity(queue, held.stored) == identity:
                self._read_on(queue, offset)
                return False
        return not self._read(topics, identity, came_back)

    def _read(self, topics: Sequence[str], identity: Identity, came_back: Container[Queue]) -> bool:
        """Take a message and those behind it; return whether there is any such message.

        Args:
            topics: where it may lie.
            identity: of the message.
            came_back: queues that went away and returned before a broker knew how far they were: there are callbacks
                again for what has passed.
        """
        _, number, offset, stored_at, unique_id = identity
        found = self._whole.find(topics, number, offset, unique_id, stored_at)
        if not found:
            structlog.get_logger("oncemq").warning(
                "message held by librocketmq was deleted by the broker because of its age",
                topic=topics[0],
                queue=number,
                offset=offset,
                id=unique_id,
            )
            return False
        with self._lock:
            # librocketmq knows it by other marks than we, so that no pass of ours would fit.
            if any(self._identity(queue, messages[0]) != identity for queue, messages in found):
                self._unlike[identity] = {(queue, offset) for queue, _ in found}
            for queue, messages in found:
                self._read_to[queue] = max(messages[-1].offset, self._read_to.get(queue, 0))
        for queue, messages in found:
            first, last = messages[0].offset, messages[-1].offset
            once_more = range(first, last + 1) if queue in came_back else (first,)
            self._take(queue, [messages[0], *self._wanted(queue.topic, messages[1:])], once_more)
        return True

    def _read_on(self, queue: Queue, offset: int) -> None:
        """Take what may have been pulled together with a message – the library is silent about it – or will be soon."""
        with self._lock:
            self._reached[queue] = max(offset, self._reached.get(queue, 0))
        self._pull(queue)

    def _pull(self, queue: Queue) -> None:
        """Ask the broker for more of a queue, unless that is being done, or enough has been read ahead."""
        busy = any(inbox.waits for inbox in self._inboxes.values())
        full = any(inbox.full for inbox in self._inboxes.values())
        with self._lock:
            last = self._read_to[queue]
            enough = last >= self._reached[queue] + (PULLED - 1 if busy else FAR)
            if enough or full or not self.alive:
                return
            if queue in self._pulling:
                # What we have heard of may have been stored after that answer was made.
                self._once_more.add(queue)
                return
            self._pulling.add(queue)
        self._whole.after(*queue, last, partial(self._pulled, queue))

    def _pulled(self, queue: Queue, messages: Sequence[StoredMessage]) -> None:
        with self._lock:
            self._pulling.discard(queue)
            once_more = queue in self._once_more
            self._once_more.discard(queue)
            if messages:
                self._read_to[queue] = max(messages[-1].offset, self._read_to[queue])
        if messages or once_more:
            self._pull(queue)
        if messages:
            self._take(queue, self._wanted(queue.topic, messages))

    def _wanted(self, topic: str, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        tags = self._tags.get(topic)
        return [message for message in messages if message.properties.get(TAGS) in tags] if tags else messages

    def _take(self, queue: Queue, messages: Sequence[StoredMessage], once_more: Container[int] = ()) -> None:
        """Deliver new messages, and pass those settled in an earlier run, or to be passed once more."""
        fresh: list[Held] = []
        settled: list[StoredMessage] = []
        with self._lock:
            if not self.alive:
                return
            taken = self._taken.setdefault(queue, Ranges())
            for stored in messages:
                place = queue, stored.offset
                # In this order: what is being finished is noted as settled first, and then held no more.
                if place in self._held:
                    continue
                if self._progress.is_settled(queue, stored.offset):
                    # Two reads that overlap must not let it pass twice: no callback would use the second pass.
                    if stored.offset in once_more or stored.offset not in taken:
                        settled.append(stored)
                    continue
                held = self._held[place] = Held(
                    self, queue, stored, inbox_of(self._inboxes, queue.topic, stored)
                )
                fresh.append(held)
            self._progress.received(queue, [held.stored for held in fresh])
            if messages:
                taken.add(messages[0].offset, messages[-1].offset)
        for inbox, many in groupby(fresh, key=lambda held: held.inbox):
            inbox.offer(list(many))
        if settled:
            self._tell([(queue, stored) for stored in settled])


def inbox_of(inboxes: Mapping[str, Inbox], topic: str, stored: StoredMessage) -> Inbox:
    """Return whom a message is for; one that is for no consumer gets a reason to be a dead letter.

    Args:
        inboxes: by the topics' real names.
        topic: where it lies.
        stored: the message.
    """
    origin = topic if topic in inboxes else stored.properties.get(ORIGIN_TOPIC, "")
    inbox = inboxes.get(origin)
    if inbox is None:
        why = f"it is a retry of topic {origin!r}, which no consumer of this process reads in its group"
        stored.trouble = stored.trouble or why
        inbox = next(iter(inboxes.values()))
    return inbox
