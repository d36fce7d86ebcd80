"""Waiters of this process for channels: a message wakes the one that has waited longest, or all where all may succeed."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from oncemq.redis import RedisClient
from oncemq.redis.listener import Listener, Subscription

_CONFIRMED_WITHIN = timedelta(seconds=1)


class Waiter:
    """One thread that waits for messages in a channel."""

    def __init__(self, subscription: Subscription, woken: threading.Event) -> None:
        self._subscription = subscription
        self.woken = woken

    def hear(self, seconds: float) -> None:
        """Return when messages will certainly arrive; after that the lock must be tried again."""
        self._subscription.confirmed.wait(min(seconds, _CONFIRMED_WITHIN.total_seconds()))

    def wait(self, seconds: float) -> None:
        """Return after a message, or after `seconds`."""
        self.woken.wait(max(0.0, seconds))
        self.woken.clear()


class Waiters:
    """All waiting threads of one client.

    Args:
        client: that subscribes to the channels.
    """

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._listener = client.shared(Listener)
        self._mutex = threading.Lock()
        self._rows: dict[str, tuple[Subscription, deque[Waiter]]] = {}

    @contextmanager
    def joined(self, channel: str, *, all_wake: bool = False) -> Iterator[Waiter]:
        """Join the waiters of `channel`; a message wakes one of them, or all where `all_wake`."""
        waiter = self.join(channel, all_wake=all_wake)
        try:
            yield waiter
        finally:
            self.leave(channel, waiter)

    def join(self, channel: str, *, all_wake: bool, woken: threading.Event | None = None) -> Waiter:
        """Return a waiter that must `leave`; `woken` is set for it, where it waits for that itself."""
        with self._mutex:
            if channel not in self._rows:
                wake = self._wake_all if all_wake else self._wake
                subscription = self._listener.subscribe(channel, lambda: wake(channel))
                self._rows[channel] = (subscription, deque())
            subscription, row = self._rows[channel]
            waiter = Waiter(subscription, woken or threading.Event())
            row.append(waiter)
            return waiter

    def leave(self, channel: str, waiter: Waiter) -> None:
        """End the wait; a message that came for it wakes the next one."""
        with self._mutex:
            subscription, row = self._rows[channel]
            row.remove(waiter)
            if not row:
                del self._rows[channel]
        if not row:
            self._listener.unsubscribe(subscription)
        elif waiter.woken.is_set():
            self._wake(channel)

    def _wake(self, channel: str) -> None:
        row = self._rows.get(channel)
        for waiter in list(row[1]) if row else ():
            if not waiter.woken.is_set():
                waiter.woken.set()
                return

    def _wake_all(self, channel: str) -> None:
        row = self._rows.get(channel)
        for waiter in list(row[1]) if row else ():
            waiter.woken.set()
