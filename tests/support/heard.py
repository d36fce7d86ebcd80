"""An observer that remembers everything it is told, for tests that ask what people and metrics would see."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition
from typing import Any

from oncemq.observe.events import Observer


@dataclass(frozen=True, slots=True)
class Told:
    """One call of an observer's method."""

    what: str
    arguments: tuple[Any, ...]
    fields: dict[str, Any]


class Heard(Observer):
    """Remembers calls in order; safe from any thread."""

    def __init__(self) -> None:
        self.calls: list[Told] = []
        self.changed = Condition()

    def of(self, what: str) -> list[Told]:
        """Return the calls of one method."""
        with self.changed:
            return [call for call in self.calls if call.what == what]

    def wait_for(self, what: str, count: int = 1, timeout: float = 10.0) -> list[Told]:
        """Return the calls of one method as soon as there are `count`."""
        with self.changed:
            enough = self.changed.wait_for(
                lambda: sum(call.what == what for call in self.calls) >= count, timeout
            )
        if not enough:
            raise AssertionError(f"{what} was not told {count} times; told: {[c.what for c in self.calls]}")
        return self.of(what)


def _remembering(what: str) -> Callable[..., None]:
    def remember(self: Heard, *arguments: Any, **fields: Any) -> None:
        with self.changed:
            self.calls.append(Told(what, arguments, fields))
            self.changed.notify_all()

    return remember


for _name in [name for name in vars(Observer) if not name.startswith("_")]:
    setattr(Heard, _name, _remembering(_name))
