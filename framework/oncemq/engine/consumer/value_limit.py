"""Limits how many messages of one value, such as a merchant, are worked on at once; those above it wait with their key."""

from collections import deque
from collections.abc import Iterable
from typing import Any

from oncemq.engine.rates.rule import ConcurrencyRule
from oncemq.message.envelope import Delivery
from oncemq.message.expressions import Expression, compile_expression
from oncemq.message.routed_reader import text_of


class ValueLimit:
    """Counts messages in work by their value; a scheduler calls it with its lock held.

    Args:
        rule: as declared.
    """

    __slots__ = ("_find", "_in_work", "_limit", "_values", "_waiting", "held")

    def __init__(self, rule: ConcurrencyRule) -> None:
        self._find: Expression = compile_expression(rule.by)
        self._limit = rule.limit
        self._in_work: dict[str, int] = {}
        self._values: dict[Delivery, str] = {}
        self._waiting: dict[str, deque[str]] = {}
        self.held: set[str] = set()

    def enter(self, delivery: Delivery) -> bool:
        """Count a message as one in work, and return whether there was room for it; one without a value needs none."""
        value = self.value_of(delivery)
        if not value:
            return True
        count = self._in_work.get(value, 0)
        if count >= self._limit:
            return False
        self._in_work[value] = count + 1
        self._values[delivery] = value
        return True

    def hold(self, delivery: Delivery) -> None:
        """Note that the message's key waits for room."""
        self._waiting.setdefault(self.value_of(delivery), deque()).append(delivery.key)
        self.held.add(delivery.key)

    def leave(self, deliveries: Iterable[Delivery]) -> list[str]:
        """Count messages as done, and return their values, each as often as it has room again."""
        left: list[str] = []
        for delivery in deliveries:
            value = self._values.pop(delivery, None)
            if value is None:
                continue
            left.append(value)
            if (count := self._in_work[value] - 1) > 0:
                self._in_work[value] = count
            else:
                del self._in_work[value]
        return left

    def next_key(self, value: str) -> str | None:
        """Return the key that has waited longest for room of a value, which waits no more; None if none does."""
        waiting = self._waiting.get(value)
        if not waiting:
            return None
        key = waiting.popleft()
        if not waiting:
            del self._waiting[value]
        self.held.discard(key)
        return key

    def clear(self) -> None:
        """Forget the keys that wait."""
        self._waiting.clear()
        self.held.clear()

    def note(self, delivery: Delivery, body: Any) -> None:
        """Note a message's value, while its body is at hand: a compressed one is decoded again when it runs."""
        delivery.concurrency = text_of(self._find(delivery.message, body))

    @staticmethod
    def value_of(delivery: Delivery) -> str:
        """Return a message's value as text; empty for a refused one, which runs nowhere."""
        return getattr(delivery, "concurrency", "")
