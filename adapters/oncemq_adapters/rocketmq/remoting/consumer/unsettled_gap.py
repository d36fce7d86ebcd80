"""Closes gaps before a queue is released: unsettled messages in front of settled ones."""

from collections.abc import Callable, Sequence

from oncemq_adapters.rocketmq.errors import FAILURES
from oncemq_adapters.rocketmq.remoting.consumer.prefetch_window import PrefetchWindow
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import ProcessQueue
from oncemq_adapters.rocketmq.remoting.consumer.subscriptions import Subscriptions
from oncemq_adapters.rocketmq.sealed_copies import opened
from oncemq_adapters.rocketmq_client.admin import browse
from oncemq_adapters.rocketmq_client.connections import Brokers
from oncemq_adapters.rocketmq_client.protocol import StoredMessage

MOST_FETCHED = 1000
"""Messages that were left on the broker for one consumer; closing must not take for ever."""

MOST_BYTES = 16 * 1024 * 1024
"""Bodies of theirs that are in memory at once, but for the last one."""


def tidy(
    queue: ProcessQueue,
    parts: Subscriptions,
    brokers: Brokers,
    move: Callable[[Sequence[StoredMessage]], Sequence[StoredMessage]],
) -> None:
    """Move it behind them.

    Args:
        queue: still ours.
        parts: whose messages are whose.
        brokers: where the rest of them lie.
        move: publishes messages to the group's retries; returns those that are safe there.
    """
    for window in parts.windows_of(queue):
        _fetch(queue, window, parts, brokers)
    held = [message for message in queue.before_settled() if queue.claim(message.offset)]
    if held:
        queue.finish([message.offset for message in move(held)])


def _fetch(queue: ProcessQueue, window: PrefetchWindow, parts: Subscriptions, brokers: Brokers) -> None:
    """Take what was left on the broker for a consumer, too, as far as something settled follows."""
    end = queue.end_of_settled()
    start = queue.ask_left(window, end)
    if start is None:
        return
    mine: list[StoredMessage] = []
    size, following = 0, end
    try:
        for message in browse(
            brokers.get(queue.broker), queue.topic, queue.number, start, end, open_copy=opened
        ):
            if parts.owner(message) is not window:
                continue
            mine.append(message)
            size += len(message.body)
            if len(mine) == MOST_FETCHED or size >= MOST_BYTES:
                following = message.offset + 1
                break
    except FAILURES:
        queue.fetch_failed(window)
        return
    queue.fetched(window, following, mine)
