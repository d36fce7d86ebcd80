"""Pauses consumers while their group is set to POP: an administrator can do that at any time, and brokers tell no member."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Final, NamedTuple

import structlog

from oncemq.errors import BrokerRefused
from oncemq_adapters.rocketmq.errors import FAILURES
from oncemq_adapters.rocketmq.remoting.admin.request_mode import popping, to_pull
from oncemq_adapters.rocketmq.remoting.operations import Operations

LOOK_EVERY: Final = 10.0
"""Seconds between looks; each asks every broker of a consumer's topic once."""


class Consumed(NamedTuple):
    """What a consumer reads.

    Args:
        consumer: its name.
        topic: by its real name.
        group: by its real name.
    """

    consumer: str
    topic: str
    group: str


class PopWatch:
    """Has the last word on whether a consumer is paused; safe for all threads.

    Args:
        desk: asks the brokers.
        consumed: what to look at.
        pause: has a consumer delivered nothing.
        resume: has it delivered to again.

    Attributes:
        trouble: by consumer, why it is paused here.
    """

    def __init__(
        self,
        desk: Operations,
        consumed: Sequence[Consumed],
        pause: Callable[[str], None],
        resume: Callable[[str], None],
    ) -> None:
        self.trouble: dict[str, str] = {}
        self._desk = desk
        self._consumed = consumed
        self._pause = pause
        self._resume = resume
        self._paused: set[str] = set()
        self._lock = Lock()
        self._log = structlog.get_logger("oncemq")

    def start(self) -> None:
        """Look once, and again and again from now on.

        Raises:
            BrokerRefused: a group is set to POP; says what to do.
            RocketMQError: no broker can be reached.
        """
        for each in self._consumed:
            if trouble := popping(self._desk.routes, self._desk.brokers, each.topic, each.group):
                raise BrokerRefused(f"{trouble} – {to_pull(each.topic, each.group)}")
        self._desk.every(LOOK_EVERY, self.look)

    def pause(self, consumer: str) -> None:
        """Pause a consumer as it is asked for."""
        with self._lock:
            self._paused.add(consumer)
            self._pause(consumer)

    def resume(self, consumer: str) -> None:
        """Resume a consumer as it is asked for, unless its group is set to POP."""
        with self._lock:
            self._paused.discard(consumer)
            if consumer not in self.trouble:
                self._resume(consumer)

    def look(self) -> None:
        """Ask the brokers, and pause or resume."""
        for each in self._consumed:
            # What cannot be reached is reported elsewhere; the last answer counts until the next one.
            with suppress(*FAILURES):
                found = popping(self._desk.routes, self._desk.brokers, each.topic, each.group)
                self._follow(each, found)

    def _follow(self, each: Consumed, trouble: str) -> None:
        with self._lock:
            known = self.trouble.pop(each.consumer, "")
            if trouble:
                self.trouble[each.consumer] = trouble
            if trouble and not known:
                self._pause(each.consumer)
                self._log.error(
                    "consumer paused: its group is set to POP",
                    consumer=each.consumer,
                    error=trouble,
                    advice=to_pull(each.topic, each.group),
                )
            elif known and not trouble:
                self._log.info(
                    "consumer goes on: its group is pulled from again",
                    consumer=each.consumer,
                    group=each.group,
                )
                if each.consumer not in self._paused:
                    self._resume(each.consumer)
