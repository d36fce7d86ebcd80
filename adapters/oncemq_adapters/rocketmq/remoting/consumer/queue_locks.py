"""Queues go from member to member without doubles: the new owner waits until the former one has unlocked.

A queue's lock has a group name of its own: while a real group holds any lock, the broker sends every retry of that
group straight to its dead letters. The name is that of the group's retries, because brokers that authorize requests (ACL
2.0) take it for the group: a consumer's account may lock under it. Members that are strictly in order (`fifo`) need the
real lock, which Java's orderly members respect; their retries never leave the process.
"""

import json
from collections.abc import Collection

import structlog

from oncemq_adapters.rocketmq.errors import Failure
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import ProcessQueue
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.connections import Brokers
from oncemq_adapters.rocketmq_client.errors import Denied
from oncemq_adapters.rocketmq_client.names import retry_topic
from oncemq_adapters.rocketmq_client.protocol import Fields, loose_json

KEEP_EVERY = 20.0
"""Seconds; a broker forgets a lock after 60."""


class QueueLocks:
    """The locks of one member.

    Args:
        brokers: who keeps the locks.
        group: by its real name.
        client: the member's id.
        fifo: the lock is the real group's.
    """

    def __init__(self, brokers: Brokers, group: str, client: str, *, fifo: bool) -> None:
        self._brokers = brokers
        self._group = group if fifo else retry_topic(group)
        # For one release: processes of the former one lock under this name, and are still running in a rolling upgrade.
        self._former = "" if fifo else f"{group}.handover"
        self._client = client
        self._fifo = fifo
        self._denied = False

    def take(self, queue: ProcessQueue) -> bool:
        """Lock a queue; returns whether it is ours. Where the account may not lock, it is, unless order depends on it.

        Raises:
            BrokerError: the broker does not answer.
        """
        if self._denied:
            return True
        # First: who has this one has the other one, too, or is of the former release.
        if not self._take_former(queue):
            return False
        try:
            _, body = self._brokers.get(queue.broker).call(codes.LOCK_QUEUES, {}, self._body([queue]))
        except Denied as denied:
            if denied.code != codes.NO_PERMISSION or self._fifo:
                raise
            self._go_without(denied)
            return True
        return bool(loose_json(body).get("lockOKMQSet"))

    def _take_former(self, queue: ProcessQueue) -> bool:
        """Lock under the former name, too. Where the account may not, no former process could."""
        if not self._former:
            return True
        try:
            body = self._body([queue], self._former)
            _, answer = self._brokers.get(queue.broker).call(codes.LOCK_QUEUES, {}, body)
        except Denied as denied:
            if denied.code != codes.NO_PERMISSION:
                raise
            self._former = ""
            return True
        return bool(loose_json(answer).get("lockOKMQSet"))

    def keep(self, broker: str, queues: Collection[ProcessQueue]) -> None:
        """Renew our locks, before they expire at the broker."""
        connection = self._brokers.alive().get(broker)
        if connection is not None and queues and not self._denied:
            for name in self._names:
                connection.submit(codes.LOCK_QUEUES, {}, self._body(queues, name), _ignore)

    def release(self, queue: ProcessQueue) -> None:
        """Unlock a queue and wait for the answer.

        Raises:
            BrokerError: the broker does not answer.
        """
        connection = self._brokers.alive().get(queue.broker)
        if connection is not None and not self._denied:
            for name in self._names:
                connection.call(codes.UNLOCK_QUEUES, {}, self._body([queue], name))

    @property
    def _names(self) -> tuple[str, ...]:
        return (self._group, self._former) if self._former else (self._group,)

    def _go_without(self, denied: Denied) -> None:
        """Say once that the account may not lock: messages in flight are redelivered when a queue changes its owner."""
        self._denied = True
        structlog.get_logger("oncemq").warning(
            "queues are handed over without locks, which the account may not set; messages in flight may be delivered twice "
            "when a member joins or leaves",
            group=self._group,
            error=str(denied),
        )

    def _body(self, queues: Collection[ProcessQueue], group: str = "") -> bytes:
        named = [
            {"topic": queue.topic, "brokerName": queue.broker, "queueId": queue.number} for queue in queues
        ]
        text = {"consumerGroup": group or self._group, "clientId": self._client, "mqSet": named}
        return json.dumps(text).encode()


def _ignore(_error: Failure | None, _fields: Fields, _body: bytes) -> None:
    """Ignore the answer: a lock that could not be renewed makes the queue's next owner wait for three seconds."""
