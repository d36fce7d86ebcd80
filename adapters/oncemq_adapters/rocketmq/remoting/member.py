"""One member of one group: says that it lives, has its share of the queues, delivers from them and commits."""

import itertools
import json
import os
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from time import monotonic

from oncemq.adapter import ConsumerHealth
from oncemq.errors import BrokerError
from oncemq_adapters.rocketmq.address import Address
from oncemq_adapters.rocketmq.names import FIRST, TopicOptions, retry_topic
from oncemq_adapters.rocketmq.properties import ORIGIN_TOPIC, TAGS
from oncemq_adapters.rocketmq.remoting import codes
from oncemq_adapters.rocketmq.remoting.assignment import Assignment, running_info
from oncemq_adapters.rocketmq.remoting.brokers import Brokers
from oncemq_adapters.rocketmq.remoting.connection import Connection
from oncemq_adapters.rocketmq.remoting.frames import Frame
from oncemq_adapters.rocketmq.remoting.handover import KEEP_EVERY, Handover
from oncemq_adapters.rocketmq.remoting.heartbeat import heartbeat_body
from oncemq_adapters.rocketmq.remoting.offsets import COMMIT_AFTER, Offsets
from oncemq_adapters.rocketmq.remoting.owned_queue import OwnedQueue
from oncemq_adapters.rocketmq.remoting.pulling import SUSPEND, Puller
from oncemq_adapters.rocketmq.remoting.routes import Routes
from oncemq_adapters.rocketmq.remoting.steward import Steward
from oncemq_adapters.rocketmq.remoting.stored import StoredMessage
from oncemq_adapters.rocketmq.remoting.window import Window, rooms

COMMIT_EVERY = 0.5
COMMIT_ALL_EVERY = 20
"""Commits; a broker loses one of two first commits of a group that meet, so all are repeated now and then."""

REBALANCE_EVERY = 20.0
SETTLE_IN = 1.2
"""Seconds for which opening waits for queues that another member hands over."""


@dataclass(frozen=True, slots=True)
class Part:
    """One subscription of a member.

    Args:
        options: what the topic is.
        window: what may be in flight.
    """

    options: TopicOptions
    window: Window


Move = Callable[[OwnedQueue, str, Sequence[StoredMessage]], Sequence[StoredMessage]]
"""Told (queue, group, messages)."""


class Member:
    """One client id in one group, with connections and a thread of its own.

    Args:
        address: how to connect.
        routes: where topics are.
        group: by its real name.
        parts: the subscriptions, by the topic's real name.
        app: the app's name, for the client id.
        move: publishes messages of a queue to the group's retries; returns those that are safe there.
    """

    def __init__(
        self,
        address: Address,
        routes: Routes,
        group: str,
        parts: Mapping[str, Part],
        app: str,
        move: Move,
    ) -> None:
        self.group = group
        self.retry_topic = retry_topic(group)
        self.fifo = any(part.options.fifo for part in parts.values())
        self.parts = parts
        self.windows = [part.window for part in parts.values()]
        self.client = f"{socket.gethostname()}@{os.getpid()}@{re.sub(r'[^A-Za-z0-9_-]', '-', app)}-{os.urandom(3).hex()}"
        self.brokers = Brokers(address, routes, self._hello, self._asked, self._lost)
        self.steward = Steward(f"oncemq-rocketmq-{group}")
        self.offsets = Offsets(self.brokers, group)
        self._address = address
        self._routes = routes
        self._version = round(time.time() * 1000)
        self._commits = itertools.count(1)
        self._move = move
        self._away = False
        self._closed = False
        self._error = ""
        self._lock = Lock()
        for window in self.windows:
            window.on_settled = self.settled
        starts = {topic: part.options.start for topic, part in parts.items()} | {self.retry_topic: FIRST}
        self.assignment = Assignment(
            self.brokers,
            routes,
            group,
            self.client,
            starts,
            self.offsets,
            Handover(self.brokers, group, self.client, fifo=self.fifo),
            address.handover.total_seconds(),
            self.steward,
            self._taken,
            self._given_up,
            self._draining,
            self._tidy,
            insist=self.fifo,
        )
        self.puller = Puller(
            self.brokers,
            group,
            self._version,
            self._expression,
            self._accept,
            lambda queue: rooms(self._windows_of(queue)),
            self._deliver,
            self.steward,
            one_by_one=self.fifo,
        )

    def start(self) -> None:
        """Join the group and take over what is our share; returns when that is done, or others are slow.

        Raises:
            BrokerError: a topic is missing, or a broker cannot be reached or refuses us.
        """
        for broker in self._wanted_brokers():
            self.brokers.get(broker)
        self.steward.start()
        self.steward.at(0, self.assignment.rebalance)
        self.steward.every(self._address.heartbeat.total_seconds(), self._beat)
        self.steward.every(COMMIT_EVERY, self._commit_all)
        self.steward.every(REBALANCE_EVERY, self._rebalance)
        self.steward.every(KEEP_EVERY, self.assignment.keep_locks)
        self.steward.every(5.0, self._watch)
        deadline = monotonic() + SETTLE_IN
        while not self.assignment.complete and monotonic() < deadline:
            time.sleep(0.005)

    def health(self) -> Sequence[ConsumerHealth]:
        """Return a row for each consumer."""
        trouble = self._trouble()
        return [
            ConsumerHealth(window.consumer, subscribed=not trouble, detail=trouble) for window in self.windows
        ]

    def pause(self, consumer: str) -> None:
        """Deliver nothing more to a consumer; a member all of whose consumers rest leaves the group for that time."""
        for window in self.windows:
            if window.consumer == consumer:
                window.pause()
        self.steward.at(0, self._leave_if_idle)

    def resume(self, consumer: str) -> None:
        """Deliver again."""
        for window in self.windows:
            if window.consumer == consumer:
                window.resume()
        self.steward.at(0, self._return)

    def settled(self, window: Window, queue: OwnedQueue, count: int) -> None:
        """Follow up on settled deliveries: room for more, and a commit now and then."""
        window.settled(queue, count)
        if queue.settled_since_commit >= COMMIT_AFTER:
            self.offsets.commit(queue)
        self.more(window, queue)

    def more(self, window: Window, queue: OwnedQueue) -> None:
        """Pull if there is room again."""
        if window.paused:
            self.steward.at(0, self._leave_if_idle)
        elif window.has_room:
            # Others of the consumer's queues may have found no room either.
            for other in list(self.assignment.queues.values()):
                if other is queue or not other.pulling:
                    self.puller.pull(other)

    def close(self) -> None:
        """Leave the group: commit, unlock, say goodbye."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for window in self.windows:
            window.pause()
        self.assignment.stop()
        self.steward.stop(10.0)
        self.assignment.release_all()
        self._unregister()
        self.brokers.close()

    def _trouble(self) -> str:
        if self._closed:
            return "closed"
        alive = self.brokers.alive()
        missing = [name for name in self._wanted_brokers() if name not in alive]
        if missing:
            return self._error or f"not connected to RocketMQ's broker {missing[0]!r}"
        troubles = [*self.assignment.trouble.values(), *self.puller.trouble.values()]
        if troubles:
            return troubles[0]
        if self._away:
            return ""
        return "" if self.assignment.settled_in else "not a member of the group yet"

    def _wanted_brokers(self) -> Sequence[str]:
        found: dict[str, None] = {}
        for topic in self.parts:
            found.update(dict.fromkeys(name for name, _ in self._routes.find(topic).readable))
        return list(found)

    def _hello(self, connection: Connection) -> None:
        connection.call(codes.HEARTBEAT, {}, self._heartbeat())

    def _heartbeat(self) -> bytes:
        topics = {topic: self._expression(topic) for topic in (*self.parts, self.retry_topic)}
        return heartbeat_body(self.client, self.group, topics, self._version, consuming=not self._away)

    def _beat(self) -> None:
        for broker in self._wanted_brokers():
            connection = self.brokers.alive().get(broker)
            if connection is None:
                continue
            try:
                self._hello(connection)
            except BrokerError as error:
                self._error = str(error)
                connection.close(error)

    def _rebalance(self) -> None:
        if not self._away:
            self.assignment.rebalance()

    def _watch(self) -> None:
        """Give up connections by which nothing comes any more, although polls must end after a while."""
        for queue in list(self.assignment.queues.values()):
            if queue.pulling and monotonic() - queue.pulled_at > SUSPEND + 10:
                connection = self.brokers.alive().get(queue.broker)
                if connection is not None:
                    connection.close("a poll was not answered")

    def _lost(self, broker: str) -> None:
        """Follow the loss of a connection; on that connection's thread."""
        if self._closed:
            return
        lost = self.assignment.lose(broker)
        if self.assignment.queues:
            for queue in lost:
                self._given_up(queue)
        else:
            for queue in lost:
                self._drop(queue)
            for window in self.windows:
                window.lost(self.assignment.generation, alone=False)
        self.steward.at(0.02, self._revive, broker)

    def _revive(self, broker: str) -> None:
        if self._closed:
            return
        try:
            self.brokers.get(broker)
        except BrokerError as error:
            self._error = str(error)
            self.steward.at(0.2, self._revive, broker)
            return
        self._error = ""
        self._rebalance()

    def _asked(self, frame: Frame) -> bytes | None:
        """Answer the broker; on a connection's thread."""
        if frame.code == codes.CONSUMERS_CHANGED:
            self.steward.at(0, self._commit_all)
            self.steward.at(0, self._rebalance)
        elif frame.code == codes.RESET_OFFSET:
            self.steward.at(0, self._reset, frame.body)
        elif frame.code == codes.RUNNING_INFO:
            return running_info([*self.parts, self.retry_topic], self.group)
        return None

    def _reset(self, body: bytes) -> None:
        """Follow an administrator who moved the group."""
        for text, offset in re.findall(rb"(\{[^{}]*\})\s*:\s*(-?\d+)", body):
            with suppress(ValueError, KeyError):
                named = json.loads(text)
                key = str(named["topic"]), str(named["brokerName"]), int(named["queueId"])
                self.assignment.move(key, int(offset))

    def _taken(self, queue: OwnedQueue) -> None:
        self.puller.pull(queue)

    def _draining(self, queue: OwnedQueue) -> None:
        for window in self._windows_of(queue):
            window.drop(queue, lost=False)

    def _tidy(self, queue: OwnedQueue) -> None:
        """Move what is unsettled in front of settled messages, which would otherwise come again with it."""
        if self.fifo:
            return
        held = [one for one in queue.before_settled() if queue.claim(one.offset)]
        if held:
            queue.finish([one.offset for one in self._move(queue, self.group, held)])

    def _given_up(self, queue: OwnedQueue) -> None:
        held = {window: queue.out[window] for window in self._windows_of(queue)}
        self._drop(queue)
        for window, count in held.items():
            if count or not self._closed:
                window.lost(queue.generation, alone=True)

    def _drop(self, queue: OwnedQueue) -> None:
        for window in self._windows_of(queue):
            window.drop(queue, lost=True)
        self.puller.trouble.pop(queue, None)

    def _windows_of(self, queue: OwnedQueue) -> Sequence[Window]:
        part = self.parts.get(queue.topic)
        return [part.window] if part is not None else self.windows

    def _expression(self, topic: str) -> str:
        part = self.parts.get(topic)
        return part.options.expression if part is not None else "*"

    def _accept(self, queue: OwnedQueue, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        part = self.parts.get(queue.topic)
        if part is None or not part.options.tags:
            return messages
        return [one for one in messages if one.trouble or one.properties.get(TAGS) in part.options.tags]

    def _deliver(self, queue: OwnedQueue, messages: Sequence[StoredMessage]) -> None:
        part = self.parts.get(queue.topic)
        if part is not None:
            part.window.offer(queue, messages)
            return
        for message in messages:
            origin = message.properties.get(ORIGIN_TOPIC, "")
            owner = self.parts.get(origin)
            if owner is None:
                message.trouble = (
                    f"it is a retry of topic {origin!r}, which nobody here consumes in its group"
                )
            (owner.window if owner is not None else self.windows[0]).offer(queue, [message])

    def _commit_all(self) -> None:
        everything = next(self._commits) % COMMIT_ALL_EVERY == 0
        for queue in list(self.assignment.queues.values()):
            self.offsets.commit(queue, even_if_same=everything)

    def _leave_if_idle(self) -> None:
        resting = all(window.paused and not window.out for window in self.windows)
        if resting and not self._away and not self._closed:
            self._away = True
            self.assignment.release_all()
            self._unregister()

    def _return(self) -> None:
        if self._away and not self._closed:
            self._away = False
            self._beat()
            self.assignment.rebalance()
        for queue in list(self.assignment.queues.values()):
            self.puller.pull(queue)

    def _unregister(self) -> None:
        for connection in self.brokers.alive().values():
            with suppress(BrokerError):
                connection.call(
                    codes.UNREGISTER, {"clientID": self.client, "consumerGroup": self.group}, timeout=2.0
                )
