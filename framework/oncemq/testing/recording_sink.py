"""Sink that records every single delivery, so that tests can count them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Condition

from oncemq.message.envelope import Delivery


@dataclass(frozen=True, slots=True)
class Received:
    """One delivery and the consumer it was for."""

    delivery: Delivery
    consumer: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A loss reported by the adapter: deliveries up to `generation`, or of it `alone`, are void."""

    consumer: str
    generation: int
    alone: bool = False


class RecordingSink:
    """Accepts deliveries from any thread and lets a test wait for them; none is merged or dropped."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._received: list[Received] = []
        self._lost: list[Lost] = []

    def deliver(self, deliveries: Sequence[Delivery], consumer: str) -> None:
        """Record deliveries."""
        with self._changed:
            self._received += [Received(delivery, consumer) for delivery in deliveries]
            self._changed.notify_all()

    def lost(self, consumer: str, generation: int, *, alone: bool = False) -> None:
        """Record a loss."""
        with self._changed:
            self._lost.append(Lost(consumer, generation, alone))
            self._changed.notify_all()

    def release(self, consumer: str, generation: int) -> Sequence[Delivery]:  # noqa: ARG002
        """Return nothing: every delivery is in the test's hands."""
        return ()

    def deliveries(self, consumer: str | None = None) -> list[Delivery]:
        """Return the deliveries so far, in order of arrival; of one consumer, or of all."""
        with self._changed:
            return self._chosen(consumer)

    def losses(self) -> list[Lost]:
        """Return the losses reported so far."""
        with self._changed:
            return list(self._lost)

    def bodies(self, consumer: str | None = None) -> list[bytes]:
        """Return the bodies delivered so far, in order of arrival."""
        return [delivery.message.body for delivery in self.deliveries(consumer)]

    def wait_for(self, count: int, timeout: float = 20.0, consumer: str | None = None) -> list[Delivery]:
        """Return all deliveries as soon as there are at least `count`.

        Raises:
            AssertionError: fewer arrived within `timeout` seconds.
        """
        self.wait_until(
            lambda: len(self._chosen(consumer)) >= count,
            lambda: f"{count} deliveries for {consumer or 'all'}, got {len(self._chosen(consumer))}",
            timeout,
        )
        return self.deliveries(consumer)

    def wait_for_loss(self, timeout: float = 20.0) -> Sequence[Lost]:
        """Return all losses as soon as there is one."""
        self.wait_until(lambda: bool(self._lost), lambda: "a loss to be told", timeout)
        return self.losses()

    def stays_at(self, count: int, seconds: float, consumer: str | None = None) -> bool:
        """Return whether no delivery beyond `count` arrives within `seconds`."""
        with self._changed:
            return not self._changed.wait_for(lambda: len(self._chosen(consumer)) > count, seconds)

    def wait_until(self, reached: Callable[[], bool], wanted: Callable[[], str], timeout: float) -> None:
        """Wait until `reached()`, checked after each delivery and loss; it runs under the sink's lock."""
        with self._changed:
            if not self._changed.wait_for(reached, timeout):
                raise AssertionError(f"waited {timeout} s for {wanted()}")

    def _chosen(self, consumer: str | None) -> list[Delivery]:
        return [entry.delivery for entry in self._received if consumer in (None, entry.consumer)]
