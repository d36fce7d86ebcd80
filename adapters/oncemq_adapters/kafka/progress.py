"""Knows whether a member moves: assigned, brokers there, and every position following its end."""

import json
from collections.abc import Collection, Mapping
from threading import Event
from time import monotonic
from typing import Any

from confluent_kafka import KafkaError

from oncemq.contracts.adapter import ConsumerHealth
from oncemq_adapters.kafka.errors import is_denied, told
from oncemq_adapters.kafka.tracker import PartitionTracker

STALLED = 30.0
"""Seconds for which a position may stand before its end."""
_SILENT = 10.0
"""Seconds without statistics after which the client counts as stuck."""

Key = tuple[str, int]


class Progress:
    """What a member's client tells about itself; written by its polling thread, read by any.

    Args:
        consumer: the consumer's name.
    """

    def __init__(self, consumer: str) -> None:
        self._consumer = consumer
        self.joined = Event()
        self.problem = ""
        self.lag: dict[Key, int] = {}
        self._open = True
        self.refused = ""
        self._away = ""
        self._stalled = ""
        self._heard_at = monotonic()
        self._positions: dict[Key, tuple[int, float]] = {}

    def assigned(self) -> None:
        """Note an assignment, also an empty one."""
        self.problem = self._away = self.refused = ""
        self._heard_at = monotonic()
        self.joined.set()

    def lost(self) -> None:
        """Note that the group goes on without this member."""
        self._away = "the group has given its partitions to others"

    def closed(self) -> None:
        """Note the end."""
        self._open = False

    def trouble(self, text: str) -> None:
        """Note what went wrong."""
        self.problem = text

    def error(self, error: KafkaError) -> None:
        """Note what the client's own threads report."""
        if is_denied(error):
            self.refused = self.problem = told(error)
        elif error.code() == KafkaError._ALL_BROKERS_DOWN or error.fatal():
            self._away = told(error)
        elif not self.joined.is_set():
            self.problem = told(error)

    def statistics(self, text: str, trackers: Mapping[Key, PartitionTracker], held: Collection[Key]) -> None:
        """Read librdkafka's statistics."""
        figures: dict[str, Any] = json.loads(text)
        self._heard_at = monotonic()
        coordinators = [
            broker["state"] for name, broker in figures["brokers"].items() if name == "GroupCoordinator"
        ]
        if "UP" not in coordinators:
            self._away = self._away or "the group's coordinator is not connected"
        elif figures.get("cgrp", {}).get("join_state") == "steady":
            self._away = self.problem = self.refused = ""
        self._look_at(figures.get("topics", {}), trackers, held)

    def health(self) -> ConsumerHealth:
        """Return the consumer's row."""
        detail = self._detail()
        return ConsumerHealth(self._consumer, subscribed=not detail, detail=detail)

    def _detail(self) -> str:
        if not self._open:
            return "closed"
        if not self.joined.is_set():
            return self.problem or "not in its group yet"
        if self.refused or self._away:
            return self.refused or self._away
        if monotonic() - self._heard_at > _SILENT:
            return "the client's thread is stuck"
        return self._stalled

    def _look_at(
        self, topics: Mapping[str, Any], trackers: Mapping[Key, PartitionTracker], held: Collection[Key]
    ) -> None:
        now, stalled, lag = monotonic(), "", {}
        for key, tracker in list(trackers.items()):
            told = topics.get(key[0], {}).get("partitions", {}).get(str(key[1]), {})
            end = int(told.get("ls_offset", -1))
            position, since = self._positions.get(key, (-1, now))
            if position != tracker.next or end <= tracker.next or key in held:
                self._positions[key] = (tracker.next, now)
            elif now - since > STALLED:
                stalled = f"partition {key[1]} of {key[0]} stands at {tracker.next} since {now - since:.0f} s, its end is {end}"
            lag[key] = max(0, end - tracker.next)
        self.lag, self._stalled = lag, stalled
