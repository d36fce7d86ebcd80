"""One long poll for each queue: the next is in flight before the pulled messages are delivered, unless there is no room."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import structlog

from oncemq.errors import BrokerRefused
from oncemq_adapters.rocketmq.errors import FAILURES, Failure
from oncemq_adapters.rocketmq.remoting.consumer.offset_store import COMMIT_AFTER, Offsets
from oncemq_adapters.rocketmq.remoting.consumer.prefetch_window import ONE_PULL, PrefetchWindow
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import ProcessQueue
from oncemq_adapters.rocketmq.remoting.consumer.subscriptions import Subscriptions
from oncemq_adapters.rocketmq.sealed_copies import opened
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.connections import Brokers, TimerThread
from oncemq_adapters.rocketmq_client.errors import Denied, MalformedFrame, lost
from oncemq_adapters.rocketmq_client.protocol import Done, Fields, StoredMessage, decode

SUSPEND = 15.0
"""Seconds for which the broker may hold a poll that finds nothing."""

_LONGEST_PAUSE = 5.0
_MANY = 10
"""Failures in a row; after more of them the pause grows no longer, and the number must not either."""
_WAIT, _SUBSCRIPTION = 2, 4


class Puller:
    """Pulls for one group.

    Args:
        brokers: whom to ask.
        group: by its real name.
        version: of the subscription; grows with each member's start.
        parts: what is asked for, who has room, and who gets it.
        steward: for another try later.
        one_by_one: nothing is pulled while anything of the queue is in flight.
    """

    def __init__(
        self,
        brokers: Brokers,
        group: str,
        version: int,
        parts: Subscriptions,
        steward: TimerThread,
        *,
        one_by_one: bool,
    ) -> None:
        self._brokers = brokers
        self._group = group
        self._version = version
        self._parts = parts
        self._steward = steward
        self._one_by_one = one_by_one
        self.trouble: dict[ProcessQueue, str] = {}

    def pull(self, queue: ProcessQueue) -> None:
        """Ask for more unless that is being done already, or must not be."""
        for window in self._parts.behind(queue):
            self._fetch(queue, window)
        if not self._parts.has_room(queue) or (self._one_by_one and not queue.idle):
            return
        asked = queue.ask()
        if asked is not None:
            self._ask(queue, asked, _WAIT | _SUBSCRIPTION, partial(self._answered, queue, asked))

    def _fetch(self, queue: ProcessQueue, window: PrefetchWindow) -> None:
        """Fetch messages left on the broker for want of room; the queue's own poll continues meanwhile."""
        asked = queue.ask_left(window)
        if asked is not None:
            self._ask(queue, asked, _SUBSCRIPTION, partial(self._fetched, queue, window, asked))

    def _ask(self, queue: ProcessQueue, offset: int, flags: int, done: Done) -> None:
        connection = self._brokers.alive().get(queue.broker)
        if connection is None:
            done(lost(queue.broker, "not connected"), {}, b"")
        else:
            connection.submit(codes.PULL_MESSAGE, self._fields(queue, offset, flags), done=done)

    def _fields(self, queue: ProcessQueue, offset: int, flags: int) -> Fields:
        chosen = self._parts.selection(queue.topic)
        # A pull could carry a commit for nothing, but brokers do not process two requests in order.
        return {
            "consumerGroup": self._group,
            "topic": queue.topic,
            "queueId": str(queue.number),
            "queueOffset": str(offset),
            "maxMsgNums": "1" if self._one_by_one else str(ONE_PULL),
            "sysFlag": str(flags),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(round(SUSPEND * 1000)),
            "subscription": chosen.text,
            "subVersion": str(self._version),
            "expressionType": chosen.kind,
        }

    def _answered(
        self,
        queue: ProcessQueue,
        offset: int,
        error: Failure | None,
        fields: Fields,
        body: bytes,
    ) -> None:
        if queue.lost or queue.draining:
            return
        try:
            messages, following = self._read(queue, offset, error, fields, body)
        except (*FAILURES, KeyError, ValueError) as failure:
            queue.failed()
            self._failed(queue, failure)
            return
        self.trouble.pop(queue, None)
        # Brokers compare the hash codes of tags, which "Aa" and "BB" share.
        fresh = queue.advance(following, *self._parts.accept(queue, messages))
        if fresh and self._one_by_one:
            self._parts.deliver(queue, fresh)
            return
        self.pull(queue)
        if fresh:
            self._parts.deliver(queue, fresh)
            # The new messages may have filled the window while the next pull was sent, or left room that was not noticed.
            self.pull(queue)

    def _fetched(
        self,
        queue: ProcessQueue,
        window: PrefetchWindow,
        offset: int,
        error: Failure | None,
        fields: Fields,
        body: bytes,
    ) -> None:
        try:
            messages, following = self._read(queue, offset, error, fields, body)
            if following <= offset:
                raise MalformedFrame(
                    f"RocketMQ does not find again what lies at offset {offset} of {queue!r}"
                )
        except (*FAILURES, KeyError, ValueError) as failure:
            queue.fetch_failed(window)
            if not queue.lost and not queue.draining:
                self._failed(queue, failure)
            return
        self.trouble.pop(queue, None)
        mine, following = self._parts.share(window, messages, following)
        self._parts.deliver(queue, queue.fetched(window, following, mine))
        self.pull(queue)

    def _read(
        self, queue: ProcessQueue, offset: int, error: Failure | None, fields: Fields, body: bytes
    ) -> tuple[Sequence[StoredMessage], int]:
        if error is None:
            messages, cut = decode(body, queue.topic, offset, opened)
            if self._one_by_one and len(messages) > 1:
                raise BrokerRefused(
                    f"topic {queue.topic} keeps batches (queue.type=BatchCQ), which come at once: consume it without fifo: true"
                )
            return messages, messages[-1].offset + 1 if cut else int(fields["nextBeginOffset"])
        if not isinstance(error, Denied) or error.code not in codes.PULLED_NOTHING:
            raise error
        following = int(error.fields["nextBeginOffset"])
        if error.code == codes.PULL_OFFSET_MOVED:
            _say_moved(queue, offset, following, error.fields)
        return (), following

    def _failed(self, queue: ProcessQueue, error: Exception) -> None:
        text = str(error) if isinstance(error, FAILURES) else f"an answer that makes no sense: {error!r}"
        self.trouble[queue] = text
        pause = min(_LONGEST_PAUSE, 0.1 * 2 ** min(queue.failures, _MANY))
        self._steward.at(pause, self.pull, queue)


def _say_moved(queue: ProcessQueue, asked: int, following: int, ends: Fields) -> None:
    """Say why a queue goes on at another offset: by an administrator's reset, or because messages are missing."""
    log = structlog.get_logger("oncemq")
    if int(ends.get("minOffset", asked + 1)) <= asked <= int(ends.get("maxOffset", -1)):
        log.info(
            "offset of a queue was reset by an administrator",
            queue=repr(queue),
            asked=asked,
            goes_on_at=following,
        )
    else:
        log.warning(
            "next message of a queue is missing in RocketMQ: deleted because of its age, or lost",
            queue=repr(queue),
            asked=asked,
            goes_on_at=following,
        )


class FlowControl:
    """Looks after the room of one member's windows, on a thread of its own.

    The settling thread has the next messages to run: it requests more at most, and neither commits nor delivers
    messages that waited for room.

    Args:
        name: of the thread.
        queues: the member's, by their keys.
        offsets: to commit.
        puller: to get more.
        idle: called when a message of a paused window was settled.
    """

    def __init__(
        self,
        name: str,
        queues: Mapping[Any, ProcessQueue],
        offsets: Offsets,
        puller: Puller,
        idle: Callable[[], object],
    ) -> None:
        self.steward = TimerThread(name)
        self._queues = queues
        self._offsets = offsets
        self._puller = puller
        self._idle = idle

    def settled(self, window: PrefetchWindow, queue: ProcessQueue, count: int, unpacked: int) -> None:
        """Follow up on settled deliveries."""
        if window.leave(queue, count, unpacked) or queue.settled_since_commit >= COMMIT_AFTER:
            self.steward.at(0, self._go_on, window, queue)
        else:
            self.more(window, queue)

    def more(self, window: PrefetchWindow, queue: ProcessQueue) -> None:
        """Pull if there is room again."""
        if window.paused:
            self._idle()
        elif window.has_room:
            # Others of the consumer's queues may have found no room either.
            for other in list(self._queues.values()):
                if other is queue or not other.pulling or other.has_left(window):
                    self._puller.pull(other)

    def _go_on(self, window: PrefetchWindow, queue: ProcessQueue) -> None:
        # First what costs time if it waits: a commit may find a connection that takes nothing for seconds.
        window.flush()
        self.more(window, queue)
        if queue.settled_since_commit >= COMMIT_AFTER:
            self._offsets.commit(queue)
