"""One channel's deliveries from arrival to their acknowledgement; when the channel is gone, all of them are void."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from oncemq.contracts.adapter import Sink
from oncemq.errors import AlreadySettled, DeliveryVoid, SettleError
from oncemq.message.envelope import Delivery, Message
from oncemq.message.headers import SEALED
from oncemq_adapters.rabbitmq.connection.link import Link
from oncemq_adapters.rabbitmq.consuming.acks import GAP_PATIENCE, AckTracker
from oncemq_adapters.rabbitmq.messages.forwarding import opened
from oncemq_adapters.rabbitmq.messages.properties import read_any
from oncemq_adapters.rabbitmq.metadata import with_routing_key
from oncemq_adapters.rabbitmq.topology.names import Place

QUIET = 0.25
"""Seconds without a delivery after which the broker has no more of a queue, if everything is settled."""


class Intake:
    """Takes a channel's deliveries and settles them; settling is thread-safe.

    Args:
        place: the queues it belongs to.
        consumer: the subscription's name.
        generation: which channel this is.
        channel: pika's channel; touched by the link's thread only.
        link: whose thread that is.
        window: the prefetch.
        sink: where deliveries go.
        close: closes the channel once all that runs is settled, in the link's thread. Then what was given back is not
            requeued by itself: the broker would deliver it behind what is on its way. None = it is.
    """

    def __init__(
        self,
        place: Place,
        consumer: str,
        generation: int,
        channel: Any,
        link: Link,
        window: int,
        sink: Sink,
        close: "Callable[[Intake], None] | None" = None,
    ) -> None:
        self.place = place
        self.consumer = consumer
        self.generation = generation
        self.channel = channel
        self.alive = True
        self._link = link
        self._tracker = AckTracker(window)
        self._deliver = sink.deliver
        self._topic = place.topic.topic
        self._keyed = bool(place.topic.routing_keys)
        self._arrived: list[Delivery] = []
        self._asked = False
        self._timed = False
        self._leaving = False
        self._left = 0
        self._close = close
        self._closing = False
        self._got_new = False
        self._last_at = 0.0

    def on_message(self, _: Any, method: Any, properties: Any, body: bytes) -> None:
        """Take one message, which is handed over with what has come together with it; called by pika."""
        tag = method.delivery_tag
        self._tracker.delivered(tag)
        if self._leaving:
            self._left += 1
            return
        # Our copies come back through the default exchange; a copy of `queue:` came that way when it was new, too.
        from_group = self._is_from_group(method)
        if from_group and properties.headers and SEALED in properties.headers:
            properties, body = opened(properties, body)
        message, refusal = read_any(
            self._topic,
            body,
            properties,
            redelivered=self._was_delivered(method),
            from_group=from_group,
            method=method,
        )
        if self._keyed:
            message = with_routing_key(message)
        delivery = Delivery(message, Token(self, tag), self.generation)
        delivery.refusal = refusal
        self._arrived.append(delivery)
        if len(self._arrived) == 1:
            self.channel.connection.after_reading(self._hand_over)

    def _is_from_group(self, method: Any) -> bool:
        return not method.exchange

    def _was_delivered(self, method: Any) -> bool:
        return bool(method.redelivered)

    def _hand_over(self) -> None:
        arrived, self._arrived = self._arrived, []
        self._last_at = time.monotonic()
        self._got_new = self._got_new or not all(delivery.message.redelivered for delivery in arrived)
        if self._leaving:
            self._left += len(arrived)
        elif self.alive:
            self._deliver(arrived, self.consumer)

    def claim(self, delivery: Delivery) -> SettleError | None:
        """Reserve a delivery for one settlement; return why that is not possible."""
        if delivery.settled:
            return AlreadySettled(f"{self._describe(delivery.message)} was settled before")
        if not self.alive:
            return self.void(delivery)
        if not self._tracker.claim(delivery.token.tag):
            return AlreadySettled(f"{self._describe(delivery.message)} was settled before")
        return None

    def unclaim(self, delivery: Delivery) -> None:
        """Make a claimed delivery unsettled again."""
        self._tracker.unclaim(delivery.token.tag)

    def finish(self, delivery: Delivery) -> SettleError | None:
        """Have a claimed delivery acknowledged; return DeliveryVoid if that came too late."""
        if not self.alive:
            return self.void(delivery)
        delivery.settled = True
        self._tracker.finish(delivery.token.tag)
        return None

    def give_back(self, delivery: Delivery) -> None:
        """Have a claimed delivery requeued."""
        delivery.settled = True
        close = self._close
        if close is None:
            self._tracker.give_back(delivery.token.tag)
            return
        self._tracker.leave()
        if not self._closing:
            self._closing = True
            self._link.post(lambda: close(self))

    def void(self, delivery: Delivery) -> DeliveryVoid:
        """Return the error for a delivery whose channel is gone."""
        return DeliveryVoid(
            f"{self._describe(delivery.message)}: the channel it came by is gone, RabbitMQ redelivers it"
        )

    def has_all_returned(self, now: float) -> bool:
        """Return whether all that had come back to the queue is here or settled; it is delivered before all else.

        Args:
            now: monotonic seconds.
        """
        nothing_left = self._tracker.unsettled() == 0 and now - self._last_at >= QUIET
        return self._got_new or self._last_at == 0.0 or nothing_left

    def leave(self, waiting: int) -> bool:
        """Hand over no more; what comes stays with the broker. From the link's thread only.

        Args:
            waiting: how many deliveries were taken back that will not be settled.

        Returns:
            Whether all others are settled: now another process may have the queue.
        """
        self._leaving = True
        self._left += waiting
        return self._tracker.unsettled() <= self._left

    def drain_soon(self) -> None:
        """Have the link's thread send pending settlements; many calls cost one."""
        if not self._asked:
            self._asked = True
            self._link.post(self._drain)

    def flush(self) -> None:
        """Send everything that has been settled; from the link's thread only."""
        self._send(everything=True)

    def _drain(self) -> None:
        # First, so that a settlement that comes while we send asks again.
        self._asked = False
        self._send(everything=False)
        if self._tracker.is_waiting() and not self._timed:
            self._timed = True
            self._link.later(GAP_PATIENCE, self._look_again)

    def _look_again(self) -> None:
        self._timed = False
        self._drain()

    def _send(self, *, everything: bool) -> None:
        channel = self.channel
        if not self.alive or not channel.is_open:
            return
        for frame in self._tracker.frames(time.monotonic(), everything=everything):
            if frame.requeue:
                channel.basic_nack(frame.tag, requeue=True)
            else:
                channel.basic_ack(frame.tag, frame.multiple)

    def _describe(self, message: Message) -> str:
        named = f" {message.message_id!r}" if message.message_id else ""
        return f"message{named} of topic {message.topic!r} for consumer {self.consumer!r}"


class Token(NamedTuple):
    """What the adapter needs to settle a delivery.

    Args:
        intake: by which it came.
        tag: the channel's number for it.
    """

    intake: Intake
    tag: int
