"""One subscription over all its channels: subscribes, notices every loss, and subscribes again for ever."""

from collections.abc import Callable, Iterator
from itertools import count
from threading import Event, Lock, Thread
from typing import Any

from oncemq.contracts.adapter import ConsumerHealth, Sink, Subscription
from oncemq.errors import BrokerError, BrokerUnavailable
from oncemq_adapters.rabbitmq.connection import errors as faults
from oncemq_adapters.rabbitmq.connection.link import Link
from oncemq_adapters.rabbitmq.consuming.channel_deliveries import Intake
from oncemq_adapters.rabbitmq.topology.names import PREFETCH_LIMIT, Place
from oncemq_adapters.rabbitmq.topology.queue_type import NO_STREAM, is_stream, stream

ANSWER_WITHIN = 5.0
"""Seconds for the broker to confirm a subscription."""

LOOK_AGAIN = 1.0


class Consumption:
    """Everything but `pause`, `resume` and `health` is called by the link's thread.

    Args:
        subscription: what is wanted.
        place: its queues.
        sink: receives deliveries and losses.
        ensure: makes sure that the place exists; may raise BrokerError.
        generations: numbers of the channels, where several subscriptions of a consumer share them; a loss is one
            channel's alone then.
    """

    def __init__(
        self,
        subscription: Subscription,
        place: Place,
        sink: Sink,
        ensure: Callable[[Place], None],
        generations: Iterator[int] | None = None,
    ) -> None:
        self.consumer = subscription.consumer
        self.place = place
        self.answered = Event()
        self.error: BrokerError | None = None
        self._window = min(place.topic.prefetch or subscription.in_flight, PREFETCH_LIMIT)
        self._sink = sink
        self._ensure = ensure
        self._generations = generations or count(1)
        self._alone = generations is not None
        self._tags = count(1)
        self._lock = Lock()
        self._paused = False
        self._looking = False
        self._tries = 0
        self._tag: str | None = None
        self._subscribed = False
        self._failures = 0
        self._intake: Intake | None = None
        self._channel: Any = None
        self._link: Link | None = None
        self._connection: Any = None

    def start(self, connection: Any, link: Link) -> None:
        """Subscribe on a connection that has just been opened."""
        self._connection, self._link = connection, link
        self._open_channel()

    def lose(self, error: BrokerError) -> None:
        """Note that the channel is gone: its deliveries are void."""
        self.error = error
        self._subscribed, self._tag = False, None
        intake, self._intake = self._intake, None
        if intake is not None:
            intake.alive = False
            self._sink.lost(self.consumer, intake.generation, alone=self._alone)

    def pause(self, link: Link | None) -> None:
        """Receive no more; received deliveries can still be settled."""
        self._set_paused(link, paused=True)

    def resume(self, link: Link | None) -> None:
        """Receive again."""
        self._set_paused(link, paused=False)

    def health(self) -> ConsumerHealth:
        """Return whether the broker has confirmed the subscription on a channel that lives."""
        if self._subscribed or (self._paused and self._intake is not None):
            return ConsumerHealth(self.consumer, subscribed=True)
        return ConsumerHealth(self.consumer, subscribed=False, detail=str(self.error or "not subscribed yet"))

    def finish(self) -> None:
        """Receive no more and send pending settlements, before the connection is closed."""
        self._paused = True
        self._follow()
        if self._intake is not None:
            self._intake.flush()

    def _set_paused(self, link: Link | None, *, paused: bool) -> None:
        with self._lock:
            self._paused = paused
        if link is not None:
            link.post(self._follow)

    @property
    def _source(self) -> str:
        """The queue that is consumed."""
        return self.place.queue

    def _arguments(self) -> dict[str, Any]:
        return dict(NO_STREAM)

    def _open_channel(self) -> None:
        self._tries += 1
        this = self._tries
        self._connection.channel(on_open_callback=self._limit)
        if self._link is not None:
            self._link.later(ANSWER_WITHIN, lambda: self._insist(this))

    def _insist(self, this: int) -> None:
        """Reconnect if the broker has not answered this try.

        Right after a restart a quorum queue knows no leader; a subscription made then is never answered, and may
        become active later and receive messages that are never delivered.
        """
        answered = self._subscribed or self._paused
        if this == self._tries and self._connection.is_open and not answered and self._link is not None:
            self._link.abandon(f"it did not answer the subscription to queue {self._source!r}")

    def _limit(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._on_close)
        channel.add_on_cancel_callback(lambda _: self._on_cancel(channel))
        channel.basic_qos(prefetch_count=self._window, callback=lambda _: self._begin(channel))

    def _begin(self, channel: Any) -> None:
        if self._link is not None:
            number = next(self._generations)
            self._intake = self._take(channel, self._link, number)
            self._follow()

    def _take(self, channel: Any, link: Link, number: int) -> Intake:
        return Intake(self.place, self.consumer, number, channel, link, self._window, self._sink)

    def _follow(self) -> None:
        """Consume or cancel, whichever is wanted and not yet so."""
        intake = self._intake
        if intake is None or not intake.channel.is_open:
            return
        if self._paused:
            if self._tag is not None:
                intake.channel.basic_cancel(self._tag, callback=lambda _: None)
                self._tag = None
            self._subscribed = False
            self.answered.set()
        elif self._tag is None:
            self._tag = f"{self.consumer}.{next(self._tags)}"
            intake.channel.basic_consume(
                self._source,
                intake.on_message,
                consumer_tag=self._tag,
                arguments=self._arguments(),
                callback=self._on_consuming,
            )

    def _on_consuming(self, _: Any) -> None:
        self._subscribed = not self._paused
        self.error = None
        self._failures = 0
        self.answered.set()

    def _on_cancel(self, channel: Any) -> None:
        """Follow a cancellation by the broker: the queue was deleted or its node is gone."""
        self._channel = None
        self._failed(
            BrokerUnavailable(f"RabbitMQ cancelled the consumer: queue {self._source!r} was deleted or moved")
        )
        if channel.is_open:
            channel.close()

    def _on_close(self, channel: Any, reason: BaseException) -> None:
        if channel is self._channel:
            self._channel = None
            self._failed(_error_of(reason, self.place))

    def _failed(self, error: BrokerError) -> None:
        self.lose(error)
        self.answered.set()
        if self._link is not None:
            self._tries += 1  # the try that failed is answered
            self._link.later(self._link.pause_after(self._failures), self._repair)
            self._failures += 1

    def _repair(self) -> None:
        """Look at the place again, aside: a host that answers slowly must not delay the link's other consumers."""
        if not self._connection.is_open or self._channel is not None or self._link is None:
            return
        if self._looking:
            self._link.later(LOOK_AGAIN, self._repair)
            return
        self._looking = True
        Thread(
            target=self._look,
            args=[self._connection, self._link],
            name=f"oncemq {self.consumer} repair",
            daemon=True,
        ).start()

    def _look(self, connection: Any, link: Link) -> None:
        error: BrokerError | None = None
        try:
            self._ensure(self.place)
        except BrokerError as failure:
            error = failure
        except Exception as failure:
            error = BrokerUnavailable(f"looking at queue {self.place.queue!r} failed: {failure!r}")
        self._looking = False
        link.post(lambda: self._looked(connection, error))

    def _looked(self, connection: Any, error: BrokerError | None) -> None:
        # A connection that was made meanwhile has a channel of its own.
        if connection is not self._connection or not connection.is_open or self._channel is not None:
            return
        if error is not None:
            self._failed(error)
        else:
            self._open_channel()


def _error_of(reason: BaseException, place: Place) -> BrokerError:
    if is_stream(reason):
        return stream(place.queue)
    if getattr(reason, "reply_code", 0) in (faults.MISSING, faults.DIFFERENT, faults.FORBIDDEN):
        return faults.declaring(reason, "queue", place.queue, "declare it again")
    return faults.lost(reason)
