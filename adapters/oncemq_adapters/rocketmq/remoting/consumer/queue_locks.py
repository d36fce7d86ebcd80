"""Queues go from member to member without doubles: the new owner waits until the former one has unlocked.

A queue's lock has a group name of its own: while a real group holds any lock, the broker sends every retry of that
group straight to its dead letters. Members that are strictly in order (`fifo`) need the real lock, which Java's
orderly members respect; their retries never leave the process.
"""

import json
from collections.abc import Collection

from oncemq.errors import BrokerError
from oncemq_adapters.rocketmq.remoting.client.broker_connections import Brokers
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import ProcessQueue
from oncemq_adapters.rocketmq.remoting.protocol import codes
from oncemq_adapters.rocketmq.remoting.protocol.connection import Fields
from oncemq_adapters.rocketmq.remoting.protocol.frames import loose_json

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
        self._group = group if fifo else f"{group}.handover"
        self._client = client

    def take(self, queue: ProcessQueue) -> bool:
        """Lock a queue; returns whether it is ours.

        Raises:
            BrokerError: the broker does not answer.
        """
        _, body = self._brokers.get(queue.broker).call(codes.LOCK_QUEUES, {}, self._body([queue]))
        return bool(loose_json(body).get("lockOKMQSet"))

    def keep(self, broker: str, queues: Collection[ProcessQueue]) -> None:
        """Renew our locks, before they expire at the broker."""
        connection = self._brokers.alive().get(broker)
        if connection is not None and queues:
            connection.submit(codes.LOCK_QUEUES, {}, self._body(queues), _ignore)

    def release(self, queue: ProcessQueue) -> None:
        """Unlock a queue and wait for the answer.

        Raises:
            BrokerError: the broker does not answer.
        """
        connection = self._brokers.alive().get(queue.broker)
        if connection is not None:
            connection.call(codes.UNLOCK_QUEUES, {}, self._body([queue]))

    def _body(self, queues: Collection[ProcessQueue]) -> bytes:
        named = [
            {"topic": queue.topic, "brokerName": queue.broker, "queueId": queue.number} for queue in queues
        ]
        text = {"consumerGroup": self._group, "clientId": self._client, "mqSet": named}
        return json.dumps(text).encode()


def _ignore(_error: BrokerError | None, _fields: Fields, _body: bytes) -> None:
    """Ignore the answer: a lock that could not be renewed makes the queue's next owner wait for three seconds."""
