"""A topic as an adapter sees it, for measurements on RocketMQ and Kafka: filled in batches before, and looked at meanwhile."""

import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from oncemq.contracts.adapter import Subscription

T = TypeVar("T")
_AT_ONCE = 4000


def send_all(send: Callable[[Sequence[T]], Sequence[Exception | None]], messages: Sequence[T]) -> None:
    """Publish every message.

    Raises:
        RuntimeError: one was not confirmed.
    """
    for start in range(0, len(messages), _AT_ONCE):
        refused = [error for error in send(messages[start : start + _AT_ONCE]) if error is not None]
        if refused:
            raise RuntimeError(f"{len(refused)} messages were not confirmed: {refused[0]}")


class Topic:
    """Looks at one topic and its group, on connections that are kept.

    Args:
        adapter: of the broker.
        subscription: of the group.
        members: returns how many members the group has.
    """

    def __init__(self, adapter: Any, subscription: Subscription, members: Callable[[], int]) -> None:
        self._adapter = adapter
        self._subscription = subscription
        self._members = members

    def look(self) -> tuple[int, int]:
        """Return how many messages wait, and how many members the group has."""
        return self._adapter.depth(self._subscription) or 0, self._members()

    def dead(self) -> int:
        """Return how many dead letters there are."""
        return sum(1 for _ in self._adapter.dead_letters(self._subscription, sys.maxsize))

    def remove(self) -> None:
        """Disconnect; the test server is thrown away as a whole."""
        self._adapter.close(grace=timedelta(seconds=1))
