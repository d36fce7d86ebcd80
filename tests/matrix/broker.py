"""A broker in memory for two processes, which holds back what comes again until someone says so."""

from collections.abc import Sequence
from datetime import timedelta

from oncemq.message.envelope import Message
from support.model.random_broker import TAG, RandomBroker


class HoldingBroker(RandomBroker):
    """Every delivery ends, or is held for the next round."""

    def __init__(self, processes: int) -> None:
        super().__init__(1, processes, 0.0)
        self._held: list[Message] = []

    def redeliver(self, message: Message) -> None:
        """Hold it."""
        self._held.append(message)
        self._ended.notify_all()

    def send(self, place: int, messages: Sequence[Message]) -> None:
        """Deliver to one of the processes, one after the other."""
        with self.lock:
            for message in messages:
                self.fronts[place].send(message)

    def settled(self, tags: set[str], within: timedelta) -> set[str]:
        """Wait until each of `tags` has ended or is held; returns those that have not."""

        def open_ones() -> set[str]:
            return tags - self.ended.keys() - {message.headers[TAG] for message in self._held}

        with self.lock:
            self._ended.wait_for(lambda: not open_ones(), within.total_seconds())
            return open_ones()

    @property
    def holds(self) -> bool:
        """Something is held."""
        with self.lock:
            return bool(self._held)

    def release(self) -> list[Message]:
        """Return what was held, which is held no longer."""
        with self.lock:
            held, self._held = self._held, []
            return held
