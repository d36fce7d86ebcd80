"""Wakes deferred messages when the lock they lack is released, before their pause ends."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from oncemq.errors import InfrastructureError
from oncemq.redis import RedisClient
from oncemq.redis.listener import Listener, Subscription
from oncemq_strategies.redisson.names import channel_of

_FORGOTTEN_AFTER = 60.0


@dataclass(slots=True)
class _Alarm:
    """One lock that deferred messages wait for.

    Args:
        subscription: to its channel.
        sleepers: callbacks, by key.
        touched: monotonic seconds of its last use.
        rung: the same, of the last message.
    """

    subscription: Subscription | None = None
    sleepers: dict[str, Callable[[str], None]] = field(default_factory=dict)
    touched: float = 0.0
    rung: float = 0.0


class Alarms:
    """Alarms for all deferred keys of one strategy.

    Args:
        client: whose channels are listened to.
    """

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._mutex = threading.Lock()
        self._alarms: dict[str, _Alarm] = {}
        self._swept = time.monotonic()

    def set(self, name: str, key: str, resume: Callable[[str], None], *, since: float) -> None:
        """Have `resume(key)` called when lock `name` may be free.

        It is also called when the subscription becomes active: an earlier release was not received.

        Args:
            name: the lock's.
            key: the deferred key.
            resume: wakes it.
            since: monotonic seconds before the lock was tried; a message received since then counts.
        """
        with self._mutex:
            alarm = self._alarms.setdefault(name, _Alarm())
            alarm.touched = time.monotonic()
            missed = alarm.rung >= since
            if not missed:
                alarm.sleepers[key] = resume
            begin = alarm.subscription is None
        if missed:
            resume(key)
        if begin:
            with suppress(InfrastructureError):  # then only its pause wakes the message
                self._begin(name, alarm)
        self._sweep()

    def clear(self, name: str) -> None:
        """Stop listening for a lock that no message of this strategy waits for."""
        if name in self._alarms:
            self._end(name, only_if_idle=True)

    def _begin(self, name: str, alarm: _Alarm) -> None:
        subscription = self._client.shared(Listener).subscribe(channel_of(name), lambda: self._ring(name))
        with self._mutex:
            if alarm.subscription is None and self._alarms.get(name) is alarm:
                alarm.subscription = subscription
                return
        self._client.shared(Listener).unsubscribe(subscription)

    def _ring(self, name: str) -> None:
        with self._mutex:
            alarm = self._alarms.get(name)
            if alarm is None:
                return
            alarm.rung = time.monotonic()
            sleepers, alarm.sleepers = alarm.sleepers, {}
        for key, resume in sleepers.items():
            resume(key)

    def _end(self, name: str, *, only_if_idle: bool = False) -> None:
        with self._mutex:
            alarm = self._alarms.get(name)
            if alarm is None or (only_if_idle and alarm.sleepers):
                return
            del self._alarms[name]
        if alarm.subscription is not None:
            self._client.shared(Listener).unsubscribe(alarm.subscription)

    def _sweep(self) -> None:
        """Drop locks whose messages have left, such as back to the broker."""
        before = time.monotonic() - _FORGOTTEN_AFTER
        if self._swept > before:
            return
        self._swept = time.monotonic()
        for name in [name for name, alarm in list(self._alarms.items()) if alarm.touched < before]:
            self._end(name)
