"""Leased deliveries of one consumer, counted until they are settled or their lease has ended."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Condition, Event, Lock
from typing import Any

from oncemq.common.clock import Clock
from oncemq.contracts.adapter import Sink
from oncemq.message.envelope import Delivery, Message
from oncemq_adapters.rocketmq_client.protocol import LARGEST_BODY, MOST_UNPACKED

PRUNE_EVERY = 0.2
"""Seconds between looks at leases that have ended, while there is no room."""

_GENERATION = 1
"""Of all deliveries: a lease belongs to the holder of its handle, on any connection."""


@dataclass(eq=False, slots=True)
class Lease:
    """The token of a delivery.

    Args:
        shelf: where it is counted.
        message_id: the broker's.
        handle: with which it is settled; each extension brings a new one.
        endpoints: of the proxy that gave it.
        raw: the message as it came.
        copied: its copy is confirmed; another settlement only has to finish the original.
        unpacked: bytes of the body if it came packed, else 0.
    """

    shelf: "Shelf"
    message_id: str
    handle: str
    endpoints: Any
    raw: Any
    copied: bool = field(default=False, init=False)
    unpacked: int = field(default=0, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)
    _claimed: bool = field(default=False, init=False)
    _extension: Event | None = field(default=None, init=False)

    def claim(self) -> bool:
        """Reserve it for a settlement, without waiting; False if it is already reserved."""
        with self._lock:
            mine, self._claimed = not self._claimed, True
            return mine

    def unclaim(self) -> None:
        """Let others settle it."""
        with self._lock:
            self._claimed = False

    def extend(self) -> Event | None:
        """Reserve it for an extension; returns what is set when that is over, None if it is being settled or extended."""
        with self._lock:
            if self._claimed or self._extension is not None:
                return None
            self._extension = Event()
            return self._extension

    def extended(self, handle: str) -> None:
        """Go on with another handle; empty = the same."""
        with self._lock:
            self.handle = handle or self.handle
            over, self._extension = self._extension, None
        if over is not None:
            over.set()

    @property
    def extension(self) -> Event | None:
        """The event set at the end of an extension in flight: until then the handle is unknown."""
        return self._extension


class Shelf:
    """Hands over to the sink as long as there is room; safe for any number of threads.

    Args:
        consumer: the subscription's name.
        group: by its real name.
        topic: by its real name.
        limit: how many deliveries may be unsettled at once.
        fifo: what came is kept in order.
        sink: where they go.
        clock: when leases end.
    """

    def __init__(
        self,
        consumer: str,
        group: str,
        topic: str,
        limit: int,
        sink: Sink,
        clock: Clock,
        *,
        fifo: bool = False,
    ) -> None:
        self.consumer = consumer
        self.group = group
        self.topic = topic
        self.fifo = fifo
        self._limit = limit
        self._sink = sink
        self._clock = clock
        self._changed = Condition()
        self._out: dict[int, Delivery] = {}
        self._paused = False
        self._closed = False

    def wait_for_room(self, most: int, stopping: Callable[[], bool]) -> int:
        """Return how many more may come, at most `most`; 0 if there is no room for a while or it is closed."""
        with self._changed:
            room = self._room()
            if room <= 0 and not stopping():
                self._changed.wait(PRUNE_EVERY)
                room = self._room()
        return max(0, min(room, most))

    def offer(self, messages: Iterable[tuple[Message, Lease]], lease: timedelta) -> Sequence[Delivery]:
        """Deliver these; returns those too late for a paused or closed shelf, which should go to other members."""
        until = self._clock.monotonic() + lease.total_seconds()
        with self._changed:
            fresh = [Delivery(message, token, _GENERATION, until) for message, token in messages]
            if self._closed or self._paused:
                return fresh
            self._out.update((id(delivery), delivery) for delivery in fresh)
            self._sink.deliver(fresh, self.consumer)
        return ()

    def settled(self, deliveries: Iterable[Delivery]) -> None:
        """Note that these are out no more."""
        with self._changed:
            for delivery in deliveries:
                self._out.pop(id(delivery), None)
            self._changed.notify_all()

    def ours(self, delivery: Delivery) -> bool:
        """Return whether a delivery's lease has not ended; the connection that it came by does not matter."""
        return not self._closed and (delivery.expires_at or 0.0) > self._clock.monotonic()

    def leased(self, deliveries: Iterable[Delivery], at_least: timedelta) -> Sequence[Delivery]:
        """Return those whose leases last so long from now."""
        until = self._clock.monotonic() + at_least.total_seconds()
        return [delivery for delivery in deliveries if (delivery.expires_at or 0.0) > until]

    def close(self) -> Sequence[Delivery]:
        """Deliver nothing more; returns the held deliveries."""
        with self._changed:
            self._closed = True
            held = self._take_all()
            self._changed.notify_all()
        return held

    def pause(self) -> None:
        """Deliver nothing until `resume`."""
        with self._changed:
            self._paused = True

    def resume(self) -> None:
        """Deliver again."""
        with self._changed:
            self._paused = False
            self._changed.notify_all()

    def _take_all(self) -> list[Delivery]:
        now = self._clock.monotonic()
        held = list(self._out.values())
        self._out.clear()
        return [delivery for delivery in held if not delivery.settled and (delivery.expires_at or 0.0) > now]

    def _room(self) -> int:
        now = self._clock.monotonic()
        if self._fitting() <= 0:
            # Whatever has expired comes again, to us or to others: dropped here, refused when settled.
            self._out = {
                key: delivery for key, delivery in self._out.items() if (delivery.expires_at or 0.0) > now
            }
        return 0 if self._paused or self._closed else self._fitting()

    def _fitting(self) -> int:
        room = self._limit - len(self._out)
        unpacked = sum([delivery.token.unpacked for delivery in self._out.values()])
        # One message more may have as many bytes as any.
        return min(room, (MOST_UNPACKED - unpacked) // LARGEST_BODY) if unpacked else room
