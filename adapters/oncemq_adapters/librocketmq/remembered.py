"""Bounded map of the latest entries: it drops the oldest ones."""

from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """Forgets the older half whenever the younger half is full; not for several threads at once.

    Args:
        half: how many there may be in each half.
    """

    def __init__(self, half: int) -> None:
        self._half = half
        self._young: dict[Key, Value] = {}
        self._old: dict[Key, Value] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def note(self, key: Key, value: Value) -> None:
        """Remember this, at the price of something old."""
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}
        self._young[key] = value

    def take(self, key: Key) -> Value | None:
        """Remove and return an entry; None if it is unknown."""
        found = self._young.pop(key, None)
        older = self._old.pop(key, None) if self._old else None
        return older if found is None else found
