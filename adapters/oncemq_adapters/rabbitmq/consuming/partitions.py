"""A subscription to a partitioned topic: its partitions, and which of them this process consumes.

Each partition has a single active consumer, so the broker itself keeps a key in one process. The members of a group tell
each other that they are there, and each computes the same shares from that. A member that gives up a partition runs
nothing more of it, waits until what runs is settled, and closes the channel: only then does another one get messages.
"""

import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from threading import Event, Thread
from typing import Any

from oncemq.contracts.adapter import ConsumerHealth, Sink, Subscription
from oncemq.errors import BrokerError
from oncemq_adapters.rabbitmq.connection.link import Link
from oncemq_adapters.rabbitmq.connection.pika_connection import keep_consumers
from oncemq_adapters.rabbitmq.consuming.channel_deliveries import Intake
from oncemq_adapters.rabbitmq.consuming.shares import Members, shares
from oncemq_adapters.rabbitmq.consuming.subscription import Consumption
from oncemq_adapters.rabbitmq.topology.names import Place

Announce = Callable[[str, bytes], BrokerError | None]

INTERVAL = 1.0
"""Seconds between two announcements of a member; the more members, the fewer does each make."""

AGAIN = 0.02
"""Seconds until another look whether all that runs of a partition is settled."""

ANSWERS_WITHIN = 0.1
"""Seconds in which the others answer a member that joins."""

RETURNED_WITHIN = 5.0
"""Seconds in which a member runs what came back from the one before, until it gives a partition up."""

ALONE_AFTER = 2.0
"""Seconds after which a member that cannot announce itself begins all the same: the broker keeps keys apart."""


class Partition(Consumption):
    """One partition: consumed while it is wanted.

    Args:
        subscription: of the whole topic.
        place: the partition's.
        sink: receives deliveries and losses.
        ensure: makes sure that all partitions exist; may raise BrokerError.
        generations: shared by all partitions of the consumer.
        among: how many partitions there are. Each has its part of the window, in every member and at all times: a quorum queue
            puts what comes back behind what came back before and is not delivered again yet, so a window must take all of it.
    """

    def __init__(
        self,
        subscription: Subscription,
        place: Place,
        sink: Sink,
        ensure: Callable[[Place], None],
        generations: Iterator[int],
        among: int,
    ) -> None:
        super().__init__(subscription, place, sink, ensure, generations)
        self._window = max(1, self._window // among)
        self._wanted = False
        self._leave_by = 0.0
        self._opening = False

    @property
    def wanted(self) -> bool:
        """Whether this member consumes it, or is about to."""
        return self._wanted

    @property
    def held(self) -> bool:
        """Whether a channel of ours may still have deliveries of it."""
        return self._intake is not None

    def start(self, connection: Any, link: Link) -> None:
        """Note the connection; consume if it is wanted."""
        self._connection, self._link = connection, link
        self._opening = False
        if self._wanted:
            self._open_channel()

    def want(self) -> None:
        """Consume it."""
        if self._wanted:
            return
        self._wanted = True
        if self._connection is not None and self._connection.is_open and not self._busy():
            self._open_channel()

    def give_up(self, *, at_once: bool = False) -> None:
        """Leave it to another member: run nothing more, and close the channel once all that runs is settled.

        Where the member before had a larger window, what came back is run first: returned twice, it would be out of order.

        Args:
            at_once: nothing is run any more.
        """
        if at_once:
            self._leave_by = 0.0
        if not self._wanted:
            return
        self._wanted = False
        if not at_once:
            self._leave_by = time.monotonic() + RETURNED_WITHIN
        if self._intake is not None:
            self._leave_soon(self._intake)

    def finish(self) -> None:
        """Hand over no more and send pending settlements.

        Without a cancel: the broker would let another consumer begin while deliveries are still here.
        """
        self._wanted = False
        if self._intake is not None:
            self._intake.leave(0)
            self._intake.flush()
            keep_consumers(self._intake.channel)

    def _busy(self) -> bool:
        return self._intake is not None or self._channel is not None or self._opening or self._looking

    def _open_channel(self) -> None:
        self._opening = True
        super()._open_channel()

    def _limit(self, channel: Any) -> None:
        self._opening = False
        super()._limit(channel)

    def _begin(self, channel: Any) -> None:
        if self._wanted:
            super()._begin(channel)
        else:
            self._close(channel)

    def _take(self, channel: Any, link: Link, number: int) -> Intake:
        return Intake(self.place, self.consumer, number, channel, link, self._window, self._sink, self._leave)

    def _insist(self, this: int) -> None:
        if self._wanted:
            super()._insist(this)

    def _repair(self) -> None:
        if self._wanted:
            super()._repair()

    def _looked(self, connection: Any, error: BrokerError | None) -> None:
        if self._wanted:
            super()._looked(connection, error)

    def _leave_soon(self, intake: Intake) -> None:
        if self._intake is not intake or self._link is None or self._wanted:
            return
        now = time.monotonic()
        if now < self._leave_by and not intake.has_all_returned(now):
            self._link.later(AGAIN, lambda: self._leave_soon(intake))
        else:
            self._leave(intake)

    def _leave(self, intake: Intake) -> None:
        """Give up in order; called again until everything that runs is settled."""
        if self._intake is not intake or self._link is None:
            return
        waiting = self._sink.release(self.consumer, intake.generation)
        if not intake.leave(len(waiting)):
            self._link.later(AGAIN, lambda: self._leave(intake))
            return
        intake.flush()
        intake.alive = False
        self._intake, self._tag, self._subscribed = None, None, False
        # The broker requeues what was not run, in its order, before it lets another consumer begin.
        self._close(intake.channel)

    def _close(self, channel: Any) -> None:
        self._channel = None
        channel.add_on_close_callback(lambda *_: self._left())
        if channel.is_open:
            keep_consumers(channel)
            channel.close()

    def _left(self) -> None:
        if self._wanted and self._connection.is_open and not self._busy():
            self._open_channel()


class PartitionedConsumption:
    """All partitions of a consumer's topic; everything but `pause`, `resume` and `health` is called by the link's thread.

    Args:
        subscription: what is wanted.
        place: of the group.
        sink: receives deliveries and losses.
        ensure: makes sure that the place exists; may raise BrokerError.

    Attributes:
        answered: set when every partition of this member's share is subscribed to, or one could not be.
        announce_soon: wakes the thread that announces.
        interval: seconds between two announcements.
        leaving: this member is about to end.
    """

    def __init__(
        self, subscription: Subscription, place: Place, sink: Sink, ensure: Callable[[Place], None]
    ) -> None:
        self.consumer = subscription.consumer
        self.place = place
        self.answered = Event()
        self.announce_soon: Callable[[], None] = lambda: None
        self.interval = INTERVAL
        self.leaving = False
        self.me = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._ensure = ensure
        self._sink = sink
        self._generations = generations = count(1)
        parts = place.parts()
        self._parts = [
            Partition(subscription, part, sink, lambda _: ensure(place), generations, len(parts))
            for part in parts
        ]
        self._members = Members(self.me, INTERVAL)
        self._paused = self._finished = self._joined = False
        self._lost: BrokerError | None = None
        self._connection: Any = None
        self._link: Link | None = None

    @property
    def error(self) -> BrokerError | None:
        """What keeps this member from its share."""
        return self._lost or next((part.error for part in self._parts if part.wanted and part.error), None)

    @property
    def parts(self) -> Sequence[Partition]:
        """The partitions."""
        return self._parts

    def start(self, connection: Any, link: Link) -> None:
        """Listen to the other members, and consume this member's share."""
        self._connection, self._link, self._lost = connection, link, None
        for part in self._parts:
            part.start(connection, link)
        connection.channel(on_open_callback=self._listen)
        link.later(ALONE_AFTER, lambda: self._join(connection))
        self._tick(connection)

    def lose(self, error: BrokerError) -> None:
        """Note that all channels are gone."""
        self._lost = error
        self._joined = False
        self._members.forget()
        if not any(part.held for part in self._parts):
            # Every loss is told, also where nothing can be void by it.
            self._sink.lost(self.consumer, next(self._generations), alone=True)
        for part in self._parts:
            part.lose(error)

    def pause(self, link: Link | None) -> None:
        """Leave the group: other members take the partitions over."""
        self._set_paused(link, paused=True)

    def resume(self, link: Link | None) -> None:
        """Join the group again."""
        self._set_paused(link, paused=False)

    def health(self) -> ConsumerHealth:
        """Return whether the broker has confirmed this member's share."""
        wanted = [part.health() for part in self._parts if part.wanted]
        missing = next((row for row in wanted if not row.subscribed), None)
        if self._lost is None and missing is None and (self._joined or self._paused):
            return ConsumerHealth(self.consumer, subscribed=True)
        detail = missing.detail if missing is not None else str(self._lost or "not subscribed yet")
        return ConsumerHealth(self.consumer, subscribed=False, detail=detail)

    def finish(self) -> None:
        """Receive no more and send pending settlements, before the connection is closed."""
        self._finished = True
        for part in self._parts:
            part.finish()

    def announcement(self) -> bytes:
        """Return what the other members are told."""
        here = not (self._paused or self.leaving)
        return json.dumps({"member": self.me, "here": here, "every": self.interval}).encode()

    def repair(self) -> None:
        """Declare again what was perhaps deleted; from the announcing thread."""
        self._ensure(self.place)

    def _set_paused(self, link: Link | None, *, paused: bool) -> None:
        self._paused = paused
        if link is not None:
            link.post(self._share)
        self.announce_soon()

    def _listen(self, channel: Any) -> None:
        queue = f"{self.place.private}.member.{self.me}"
        connection = self._connection

        def consume(_: Any) -> None:
            channel.basic_consume(queue, self._hear, auto_ack=True, exclusive=True)
            self.announce_soon()

        channel.add_on_close_callback(lambda *_: self._listen_again(connection))
        channel.queue_declare(
            queue,
            exclusive=True,
            auto_delete=True,
            callback=lambda _: channel.queue_bind(queue, self.place.members, "", callback=consume),
        )

    def _listen_again(self, connection: Any) -> None:
        if self._link is not None and not self._finished and connection is self._connection:
            self._link.later(INTERVAL, lambda: self._reopen(connection))

    def _reopen(self, connection: Any) -> None:
        if connection is self._connection and connection.is_open:
            connection.channel(on_open_callback=self._listen)

    def _hear(self, _channel: Any, _method: Any, _properties: Any, body: bytes) -> None:
        try:
            said = json.loads(body)
            member, here, every = str(said["member"]), bool(said["here"]), float(said["every"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return
        changed = self._members.heard(member, here=here, every=every, now=time.monotonic())
        if changed and here:
            self.announce_soon()
        if changed and self._joined:
            self._share()
        elif member == self.me and not self._joined and self._link is not None:
            connection = self._connection
            self._link.later(ANSWERS_WITHIN, lambda: self._join(connection))

    def _join(self, connection: Any) -> None:
        if connection is self._connection and not self._joined:
            self._joined = True
            self._share()
            self._answer(connection)

    def _answer(self, connection: Any) -> None:
        """Say when the whole share is subscribed to."""
        if connection is not self._connection or self._link is None or self.answered.is_set():
            return
        if all(part.answered.is_set() for part in self._parts if part.wanted):
            self.answered.set()
        else:
            self._link.later(AGAIN, lambda: self._answer(connection))

    def _tick(self, connection: Any) -> None:
        """Look for members that are not heard any more."""
        if connection is not self._connection or self._link is None or self._finished:
            return
        if self._joined:
            self._share()
        self._link.later(INTERVAL / 2, lambda: self._tick(connection))

    def _share(self) -> None:
        """Want this member's share, and give up the rest."""
        if self._finished or not self._joined:
            return
        if self._paused:
            mine: Sequence[int] = ()
        else:
            others = self._members.alive(time.monotonic())
            self.interval = INTERVAL + len(others) / 20
            mine = shares([self.me, *others], len(self._parts))[self.me]
        for number, part in enumerate(self._parts):
            if number in mine:
                part.want()
            else:
                part.give_up(at_once=self._paused)


class Announcer:
    """Announces this process to the other members, in a thread: publishing may have to wait.

    Args:
        parts: what it announces.
        publish: publishes a body to an exchange; returns what went wrong.
    """

    def __init__(
        self,
        parts: Sequence[PartitionedConsumption],
        publish: Announce,
    ) -> None:
        self._parts = parts
        self._publish = publish
        self._wake = Event()
        self._stopping = False
        self._thread = Thread(target=self._run, name="oncemq members", daemon=True)
        for part in parts:
            part.announce_soon = self._wake.set

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Announce the end, unless that takes long."""
        for part in self._parts:
            part.leaving = True
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(INTERVAL)

    def _run(self) -> None:
        ending = False
        while not ending:
            self._wake.wait(min(part.interval for part in self._parts))
            self._wake.clear()
            ending = self._stopping
            for part in self._parts:
                self._announce(part)

    def _announce(self, part: PartitionedConsumption) -> None:
        try:
            if self._publish(part.place.members, part.announcement()) is not None and not self._stopping:
                part.repair()
        except BrokerError:
            return
