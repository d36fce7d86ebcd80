"""Before a queue is left in order: what is unsettled in front of settled messages, which would come again with it."""

from collections.abc import Callable, Sequence
from itertools import islice

from oncemq.errors import BrokerError
from oncemq_adapters.rocketmq.remoting.brokers import Brokers
from oncemq_adapters.rocketmq.remoting.browsing import browse
from oncemq_adapters.rocketmq.remoting.owned_queue import OwnedQueue
from oncemq_adapters.rocketmq.remoting.parts import Parts
from oncemq_adapters.rocketmq.remoting.stored import StoredMessage
from oncemq_adapters.rocketmq.remoting.window import Window

MOST_FETCHED = 1000
"""Messages that were left on the broker for one consumer; closing must not take for ever."""


def tidy(
    queue: OwnedQueue,
    parts: Parts,
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
    held = [one for one in queue.before_settled() if queue.claim(one.offset)]
    if held:
        queue.finish([one.offset for one in move(held)])


def _fetch(queue: OwnedQueue, window: Window, parts: Parts, brokers: Brokers) -> None:
    """Take what was left on the broker for a consumer, too."""
    start = queue.ask_left(window)
    if start is None:
        return
    end = queue.next or start
    try:
        lying = browse(brokers.get(queue.broker), queue.topic, queue.number, start, end)
        mine = list(islice((one for one in lying if parts.owner(one) is window), MOST_FETCHED))
    except BrokerError:
        queue.fetch_failed(window)
        return
    queue.fetched(window, mine[-1].offset + 1 if len(mine) == MOST_FETCHED else end, mine)
