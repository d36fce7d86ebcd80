"""A subscription to a stream: one process of the group reads it, and the app's database keeps how far.

A stream keeps its messages, and RabbitMQ does not keep for AMQP clients how far a group has read. So the positions are in
the ledger, with the lease of the process that reads; others stand by. Retries come back by a queue of the group's own, which all of its
processes consume.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from itertools import count
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any

import structlog

from oncemq.contracts.adapter import ConsumerHealth, Sink, Subscription
from oncemq.contracts.broadcast import Positions
from oncemq.errors import BrokerError
from oncemq_adapters.rabbitmq.connection.link import Link
from oncemq_adapters.rabbitmq.consuming.channel_deliveries import Intake
from oncemq_adapters.rabbitmq.consuming.partitions import Partition
from oncemq_adapters.rabbitmq.consuming.subscription import Consumption
from oncemq_adapters.rabbitmq.topology.names import Place
from oncemq_adapters.rabbitmq.topology.streams import OFFSET, QUEUE, ends_of, offset_at
from oncemq_adapters.start import FIRST, LAST

Connected = Callable[[], AbstractContextManager[Any]]

LOOK_EVERY = 0.5
"""Seconds between two looks of the keeper; the position is saved as often, if it has changed."""

RENEW_AFTER = 1.0
"""Seconds until the lease is renewed where no position is to be saved."""

ASK_AGAIN = 2.0
"""Seconds until a process that stands by asks again for the lease, which ends six seconds after its holder died."""

GIVE_UP_AFTER = 4.0
"""Seconds without an answer of the database or the broker, until the stream is left to others; less than the lease."""


class StreamIntake(Intake):
    """Deliveries of a stream, by their offsets.

    Args:
        at: the offset where the subscription begins.
        doubtful: how many messages may have been delivered to a process before, which has died.
        given: everything else, as for `Intake`.
    """

    def __init__(self, at: int, doubtful: int, *given: Any) -> None:
        super().__init__(*given)
        self._offsets_lock = Lock()
        self._offsets: deque[tuple[int, int]] = deque()
        self._end = at
        self._doubtful = at + doubtful

    def on_message(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        """Take one message, and note its offset; called by pika."""
        offset = int(properties.headers[OFFSET])
        with self._offsets_lock:
            self._offsets.append((method.delivery_tag, offset))
            self._end = offset + 1
        super().on_message(channel, method, properties, body)

    def position(self) -> int:
        """Return the offset up to which everything is settled; from any thread."""
        with self._offsets_lock:
            settled_to = self._tracker.first_open()
            while self._offsets and self._offsets[0][0] < settled_to:
                self._offsets.popleft()
            return self._offsets[0][1] if self._offsets else self._end

    def _is_from_group(self, method: Any) -> bool:  # noqa: ARG002
        # No copy of ours is in a stream.
        return False

    def _was_delivered(self, method: Any) -> bool:  # noqa: ARG002
        # A stream does not say so.
        return self._end <= self._doubtful


class StreamReader(Partition):
    """The stream, consumed while this process has the lease of its group.

    Args:
        subscription: of the group.
        place: of the group; names the stream.
        sink: receives deliveries and losses.
        ensure: makes sure that the place exists; may raise BrokerError.
        generations: shared with the subscription to the group's own queue.
    """

    def __init__(
        self,
        subscription: Subscription,
        place: Place,
        sink: Sink,
        ensure: Callable[[Place], None],
        generations: Iterator[int],
    ) -> None:
        super().__init__(subscription, place, sink, ensure, generations, 1)
        self.stream = str(place.topic.stream)
        self._at = 0

    @property
    def _source(self) -> str:
        return self.stream

    def _arguments(self) -> dict[str, Any]:
        return {OFFSET: self._at}

    def begin(self, at: int) -> None:
        """Consume it from an offset on."""
        self._at = at
        self.want()

    def position(self) -> int:
        """Return the offset up to which everything is settled; from any thread."""
        intake = self._intake
        return max(self._at, intake.position()) if isinstance(intake, StreamIntake) else self._at

    def lose(self, error: BrokerError) -> None:
        """Note that the channel is gone, and where to go on."""
        intake = self._intake
        super().lose(error)
        self._go_on_behind(intake)

    def _leave(self, intake: Intake) -> None:
        super()._leave(intake)
        if self._intake is not intake:
            self._go_on_behind(intake)

    def _go_on_behind(self, intake: Intake | None) -> None:
        if isinstance(intake, StreamIntake):
            self._at = max(self._at, intake.position())

    def _take(self, channel: Any, link: Link, number: int) -> Intake:
        given = (self.place, self.consumer, number, channel, link, self._window, self._sink, self._leave)
        return StreamIntake(self._at, self._window, *given)


class StreamConsumption:
    """The group's own queue, and the stream while it is this process's turn to read it.

    Args:
        subscription: what is wanted.
        place: of the group.
        sink: receives deliveries and losses.
        ensure: makes sure that the place exists; may raise BrokerError.

    Attributes:
        look_soon: wakes the keeper.
    """

    def __init__(
        self, subscription: Subscription, place: Place, sink: Sink, ensure: Callable[[Place], None]
    ) -> None:
        generations: Iterator[int] = count(1)
        self.consumer = subscription.consumer
        self.place = place
        self.look_soon: Callable[[], None] = lambda: None
        self._positions = subscription.positions
        self._own = Consumption(subscription, place, sink, ensure, generations)
        self._reader = StreamReader(subscription, place, sink, ensure, generations)
        self._link: Link | None = None
        self._paused = False
        self._ours = False
        self._saved = -1
        self._renewed = self._asked = self._reached = float("-inf")
        self._trouble = ""
        self._log = structlog.get_logger("oncemq")

    @property
    def answered(self) -> Event:
        """Set when the group's own queue is subscribed to, or could not be."""
        return self._own.answered

    @property
    def error(self) -> BrokerError | None:
        """What keeps this process from consuming."""
        return self._own.error or self._reader.error

    def start(self, connection: Any, link: Link) -> None:
        """Subscribe on a connection that has just been opened."""
        self._link = link
        self._own.start(connection, link)
        self._reader.start(connection, link)
        self.look_soon()

    def lose(self, error: BrokerError) -> None:
        """Note that the channels are gone."""
        self._own.lose(error)
        self._reader.lose(error)

    def pause(self, link: Link | None) -> None:
        """Receive no more; another process of the group may read the stream."""
        self._paused = True
        self._own.pause(link)
        self.look_soon()

    def resume(self, link: Link | None) -> None:
        """Receive again."""
        self._paused = False
        self._own.resume(link)
        self.look_soon()

    def health(self) -> ConsumerHealth:
        """Return whether the own queue is subscribed to, and the stream is, or another process reads it."""
        own = self._own.health()
        if not own.subscribed or self._paused:
            return own
        if self._trouble:
            return ConsumerHealth(self.consumer, subscribed=False, detail=self._trouble)
        return self._reader.health() if self._reader.wanted else own

    def finish(self) -> None:
        """Receive no more and send pending settlements, before the connection is closed."""
        self._own.finish()
        self._reader.finish()

    def look(self, connected: Connected) -> None:
        """Begin, go on, or leave the stream to others; from the keeper's thread.

        Args:
            connected: lends a connection to the broker.
        """
        positions, link = self._positions, self._link
        if positions is None or link is None:
            return
        try:
            if self._paused:
                self._let_go(positions, link)
            elif self._ours:
                self._keep(positions, link)
            elif monotonic() - self._asked >= ASK_AGAIN and not self._reader.held:
                self._asked = monotonic()
                self._take(positions, link, connected)
        except BrokerError as error:
            self._trouble = str(error)
            if self._ours and monotonic() - self._renewed > GIVE_UP_AFTER:
                self._lose_turn(link)

    def end(self) -> None:
        """Save how far everything is settled, and leave the stream to another process."""
        if self._ours and self._positions is not None:
            self._save(self._positions)
            self._positions.leave()
            self._ours = False

    def _let_go(self, positions: Positions, link: Link) -> None:
        self._trouble = ""
        if self._reader.wanted:
            link.post(lambda: self._reader.give_up(at_once=True))
        elif self._ours and not self._reader.held:
            self.end()
        elif self._ours:
            self._save(positions)
        self._asked = float("-inf")

    def _keep(self, positions: Positions, link: Link) -> None:
        if self._reader.health().subscribed:
            self._reached = monotonic()
        elif monotonic() - self._reached > GIVE_UP_AFTER and not self._reader.held:
            # Another process may reach the broker.
            self._lose_turn(link)
            positions.leave()
            return
        if self._reader.position() == self._saved and monotonic() - self._renewed < RENEW_AFTER:
            return
        if self._save(positions):
            self._trouble = ""
        else:
            self._lose_turn(link)

    def _save(self, positions: Positions) -> bool:
        """Store how far everything is settled, and renew the lease; returns whether it is ours."""
        at = self._reader.position()
        if at == self._saved:
            ours = not positions.hold()
        else:
            ours = positions.write({(self._reader.stream, QUEUE): at})
            self._saved = at if ours else self._saved
        if ours:
            self._renewed = monotonic()
        return ours

    def _lose_turn(self, link: Link) -> None:
        self._ours = False
        link.post(lambda: self._reader.give_up(at_once=True))

    def _take(self, positions: Positions, link: Link, connected: Connected) -> None:
        """Read the stream if no other process does, from where the group is."""
        if positions.hold():
            self._trouble = ""
            return
        self._renewed = monotonic()
        with connected() as connection:
            at = self._begin_at(positions, connection)
        if at is None:
            positions.leave()
            return
        if not positions.write({(self._reader.stream, QUEUE): at}):
            return
        self._trouble, self._ours, self._saved, self._reached = "", True, at, monotonic()
        link.post(lambda: self._reader.begin(at))

    def _begin_at(self, positions: Positions, connection: Any) -> int | None:
        """Return the offset to read from; None if the stream is not the one that the group has read."""
        stream, start = self._reader.stream, self.place.topic.start
        first, end = ends_of(connection, stream)
        at = positions.read(stream).get(QUEUE)
        if at is None:
            if isinstance(start, datetime):
                found = offset_at(connection, stream, start)
                return end if found is None else found
            return {FIRST: first, LAST: end}[start]
        if at > end:
            self._trouble = (
                f"the stream {stream!r} ends at offset {end}, but this group has read up to {at}: it was deleted and made "
                "again – delete the group's row of it in oncemq_broadcast_positions; then it begins as start: says"
            )
            return None
        if at < first:
            self._log.warning(
                "the stream has deleted messages before they were read",
                consumer=self.consumer,
                stream=stream,
                messages=first - at,
            )
        return max(first, at)


class StreamKeeper:
    """Keeps leases and positions of streams, in a thread: the database may have to be waited for.

    Args:
        parts: the subscriptions to streams.
        connected: lends a connection to the broker.
    """

    def __init__(self, parts: Sequence[StreamConsumption], connected: Connected) -> None:
        self._parts = parts
        self._connected = connected
        self._wake = Event()
        self._stopping = False
        self._thread = Thread(target=self._run, name="oncemq streams", daemon=True)
        for part in parts:
            part.look_soon = self._wake.set

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Save the positions, after the connection is closed, and leave the streams to others."""
        self._stopping = True
        self._wake.set()
        self._thread.join(GIVE_UP_AFTER)

    def _run(self) -> None:
        while not self._stopping:
            for part in self._parts:
                part.look(self._connected)
            self._wake.wait(LOOK_EVERY)
            self._wake.clear()
        for part in self._parts:
            try:
                part.end()
            except BrokerError as error:
                structlog.get_logger("oncemq").warning(
                    "the position in a stream is not saved; messages are read again and are duplicates",
                    consumer=part.consumer,
                    error=str(error),
                )
