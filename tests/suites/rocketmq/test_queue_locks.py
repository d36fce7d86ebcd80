"""A queue changes hands by its lock, also between processes of this release and of the former one."""

import json
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest

from oncemq.contracts.adapter import Subscription
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import ProcessQueue
from oncemq_adapters.rocketmq.remoting.consumer.queue_locks import QueueLocks
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.connections import Brokers
from support.brokers.rocketmq import adapter_on

BROKER = "broker-a"


@pytest.fixture
def brokers(rocketmq_url: str) -> Iterator[Brokers]:
    """Connections to the shared server."""
    adapter = adapter_on(rocketmq_url)
    adapter.prepare(())
    yield adapter._opened_desk().brokers
    adapter.close(grace=timedelta(seconds=1))


@pytest.fixture
def queue(rocketmq_url: str) -> Iterator[ProcessQueue]:
    """A queue of a topic of its own."""
    topic = f"t{uuid4().hex[:8]}"
    adapter = adapter_on(rocketmq_url)
    adapter.prepare([Subscription("c", topic, "other", {"queues": 1})])
    yield ProcessQueue((topic, BROKER, 0), 1)
    adapter.close(grace=timedelta(seconds=1))


def former(brokers: Brokers, code: int, queue: ProcessQueue, group: str) -> bool:
    """Lock or unlock as a process of the former release does; returns whether it has the queue."""
    named = {"topic": queue.topic, "brokerName": queue.broker, "queueId": queue.number}
    text = {"consumerGroup": f"{group}.handover", "clientId": "old", "mqSet": [named]}
    _, body = brokers.get(BROKER).call(code, {}, json.dumps(text).encode())
    return b"lockOKMQSet" in body and bool(json.loads(body)["lockOKMQSet"])


def test_a_process_of_the_former_release_keeps_its_queue_until_it_unlocks(
    brokers: Brokers, queue: ProcessQueue
) -> None:
    """And it gets one of ours only when we have unlocked: in a rolling upgrade no message is run by both."""
    group = f"g{uuid4().hex[:8]}"
    locks = QueueLocks(brokers, group, "new", fifo=False)
    assert former(brokers, codes.LOCK_QUEUES, queue, group)
    assert not locks.take(queue)
    former(brokers, codes.UNLOCK_QUEUES, queue, group)
    assert locks.take(queue)
    assert not former(brokers, codes.LOCK_QUEUES, queue, group)
    locks.release(queue)
    assert former(brokers, codes.LOCK_QUEUES, queue, group)


def test_members_of_one_release_have_a_queue_one_after_the_other(
    brokers: Brokers, queue: ProcessQueue
) -> None:
    """The lock is one member's until it lets go."""
    group = f"g{uuid4().hex[:8]}"
    first, second = (QueueLocks(brokers, group, client, fifo=False) for client in ("one", "two"))
    assert first.take(queue)
    assert first.take(queue)
    assert not second.take(queue)
    first.release(queue)
    assert second.take(queue)
