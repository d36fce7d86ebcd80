"""One client for all of it: publishes, asks, pulls, keeps offsets, makes topics and looks at them."""

import os
import socket
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Self

from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.admin.offset_requests import (
    commit_offset,
    committed_offset,
    first_offset,
    last_offset,
)
from oncemq_adapters.rocketmq_client.admin.queue_browser import browsing_fields
from oncemq_adapters.rocketmq_client.admin.topics import connect_all, create_group, create_topic
from oncemq_adapters.rocketmq_client.cluster import Cluster
from oncemq_adapters.rocketmq_client.codes import Place
from oncemq_adapters.rocketmq_client.connections.broker_connections import Brokers
from oncemq_adapters.rocketmq_client.connections.routes import Routes
from oncemq_adapters.rocketmq_client.connections.timer_thread import TimerThread
from oncemq_adapters.rocketmq_client.errors import Denied, NoReply, RocketMQError, RocketMQUnavailable
from oncemq_adapters.rocketmq_client.names import FIRST
from oncemq_adapters.rocketmq_client.producer.producer import Producer
from oncemq_adapters.rocketmq_client.producer.requests import Reply, Requester
from oncemq_adapters.rocketmq_client.protocol.connection import ANSWER_WITHIN, Connection
from oncemq_adapters.rocketmq_client.protocol.frames import Frame
from oncemq_adapters.rocketmq_client.protocol.heartbeat import producer_heartbeat_body
from oncemq_adapters.rocketmq_client.protocol.message_codec import StoredMessage, decode
from oncemq_adapters.rocketmq_client.protocol.send_request import Outgoing

_BEAT_EVERY = 30.0
"""Seconds; a broker drops a connection that is silent for two minutes."""
_WAIT, _SUBSCRIPTION = 2, 4


class Pull(NamedTuple):
    """What a pull brought.

    Args:
        messages: in order; none where nothing came in time.
        following: the offset to pull from next.
    """

    messages: Sequence[StoredMessage]
    following: int


class QueueState(NamedTuple):
    """One queue of a topic.

    Args:
        queue: the broker's name and the queue's number there.
        first: the offset of the oldest message.
        following: the offset of the next message to be stored; as `first` where the queue is empty.
    """

    queue: Place
    first: int
    following: int


class Client:
    """Connects when it is first needed; safe for any number of threads. Leave it by `with`, or close it.

    Args:
        cluster: where RocketMQ is, and as whom to connect.
        group: the producer group in whose name messages are sent.
        confirm_within: how long a message may wait for its confirmation.
    """

    def __init__(
        self, cluster: Cluster, group: str, confirm_within: timedelta = timedelta(seconds=10)
    ) -> None:
        self._group = group
        self._id = f"{socket.gethostname()}@{os.getpid()}@{os.urandom(4).hex()}"
        self._routes = Routes(cluster)
        self._brokers = Brokers(
            cluster,
            self._routes,
            self._hello,
            self._asked,
            self._lost,
        )
        self._producer = Producer(self._brokers, self._routes, group, confirm_within)
        self._requester: Requester[Reply] = Requester(
            self._brokers, self._routes, self._producer, self._id, group, lambda reply: reply
        )
        self._beats = TimerThread(f"rocketmq-client-{group}")
        self._beats.every(_BEAT_EVERY, self._beat)
        self._beats.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect for good."""
        self._beats.stop(1.0)
        self._requester.close(
            RocketMQUnavailable("the client was closed while a request waited for its reply")
        )
        self._brokers.close()
        self._routes.close()

    def connect(self) -> None:
        """Prove that a name server and a broker can be used, which need not be asked for.

        Raises:
            RocketMQError: they cannot.
        """
        connect_all(self._routes, self._brokers)

    def send(self, messages: Sequence[Outgoing]) -> Sequence[RocketMQError | None]:
        """Publish; return for each message None when a broker has confirmed it, else why it is not."""
        return self._producer.send(messages)

    def request(self, message: Outgoing, wait: timedelta) -> Reply:
        """Publish a request, and return the first reply: of a Java consumer, or of any other that answers.

        A reply that comes while the connection to its broker is lost is dropped by the broker.

        Args:
            message: what is asked; it need not be asked for again to have its effect, and may have it without a reply.
            wait: for all of it.

        Raises:
            NoReply: none came in time; the request may still take effect.
            RocketMQError: it was not sent, or not confirmed.
        """
        deadline = time.monotonic() + wait.total_seconds()
        answer = self._requester.begin(message, wait.total_seconds())
        try:
            return answer.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            text = f"no reply to the request to {message.topic!r} within {wait.total_seconds():g} s; it may still take effect"
            raise NoReply(text) from None

    def queues(self, topic: str) -> Sequence[Place]:
        """Return the queues of a topic that can be read, sorted as every member of a group sorts them.

        Raises:
            Denied: there is no such topic.
            RocketMQUnavailable: no name server answers.
        """
        return self._routes.ask(topic).readable

    def look_at(self, topic: str) -> Sequence[QueueState]:
        """Return each queue of a topic with its first offset and the one behind its last.

        Raises:
            RocketMQError: there is no such topic, or a broker does not answer.
        """
        states = []
        for broker, number in self.queues(topic):
            connection = self._brokers.get(broker)
            first = first_offset(connection, topic, number, FIRST)
            states.append(QueueState((broker, number), first, last_offset(connection, topic, number)))
        return states

    def offset_at(self, topic: str, queue: Place, moment: datetime) -> int:
        """Return the offset of the first message that was stored at or after an aware moment.

        Raises:
            RocketMQError: the broker does not say.
        """
        broker, number = queue
        return first_offset(self._brokers.get(broker), topic, number, moment)

    def pull(
        self,
        group: str,
        topic: str,
        queue: Place,
        offset: int,
        *,
        most: int = 32,
        wait: timedelta = timedelta(0),
        tags: str = "*",
    ) -> Pull:
        """Return messages of a queue from an offset on; nothing is committed by that.

        Args:
            group: in whose name is read.
            topic: its name.
            queue: the broker's name and the queue's number there.
            offset: the first one; outside of the queue, none are returned and `following` is where it goes on.
            most: messages.
            wait: how long the broker may wait for a message when there is none.
            tags: only messages with one of these, such as `paid || cancelled`; `*` = all.

        Raises:
            RocketMQError: the broker does not answer, or refuses.
        """
        broker, number = queue
        seconds = wait.total_seconds()
        fields = {
            **browsing_fields(topic, number, offset, tags, group),
            "maxMsgNums": str(most),
            "sysFlag": str(_SUBSCRIPTION | (_WAIT if seconds > 0 else 0)),
            "suspendTimeoutMillis": str(round(seconds * 1000)),
        }
        try:
            answer, body = self._brokers.get(broker).call(
                codes.PULL_MESSAGE, fields, timeout=seconds + ANSWER_WITHIN
            )
        except Denied as denied:
            if denied.code not in codes.PULLED_NOTHING:
                raise
            return Pull((), int(denied.fields.get("nextBeginOffset", offset)))
        messages, cut = decode(body, topic, offset)
        return Pull(messages, messages[-1].offset + 1 if cut else int(answer["nextBeginOffset"]))

    def committed(self, group: str, topic: str, queue: Place) -> int | None:
        """Return the offset at which a group goes on with a queue; None if it has committed nothing of it.

        Raises:
            RocketMQError: the broker does not say.
        """
        broker, number = queue
        try:
            return committed_offset(self._brokers.get(broker), group, topic, number)
        except Denied as denied:
            if denied.code == codes.NO_GROUP:
                return None
            raise

    def commit(self, group: str, topic: str, queue: Place, offset: int) -> None:
        """Note that a group goes on at an offset, and wait for the confirmation; an unknown group is made.

        Raises:
            RocketMQError: the broker does not confirm it.
        """
        broker, number = queue
        connection = self._brokers.get(broker)
        try:
            commit_offset(connection, group, topic, number, offset)
        except Denied as denied:
            if denied.code != codes.NO_GROUP:
                raise
            create_group(connection, group)
            commit_offset(connection, group, topic, number, offset)

    def create_topic(self, name: str, queues: int = 8, *, fifo: bool = False) -> None:
        """Make a topic on every broker, or change how many queues it has; returns when name servers know it.

        Args:
            name: its name.
            queues: on each broker.
            fifo: the topic says of itself that its messages are in order, which proxies of RocketMQ 5 ask for.

        Raises:
            RocketMQError: a broker refused, or none can be reached.
        """
        create_topic(self._routes, self._brokers, name, queues, fifo=fifo)

    def topics(self) -> frozenset[str]:
        """Return the names of all topics; none where the account may not list them.

        Raises:
            RocketMQUnavailable: no name server answers.
        """
        return self._routes.topics()

    def _asked(self, _broker: str, frame: Frame) -> bytes | None:
        return self._requester.pushed(frame)

    def _lost(self, broker: str) -> None:
        self._requester.lost(broker)

    def _hello(self, connection: Connection) -> None:
        connection.call(codes.HEARTBEAT, {}, producer_heartbeat_body(self._id, self._group))

    def _beat(self) -> None:
        self._routes.refresh()
        self._requester.look()
        for connection in self._brokers.alive().values():
            try:
                self._hello(connection)
            except RocketMQError as error:
                connection.close(error)
