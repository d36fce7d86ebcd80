"""Broker in memory without threads: it delivers when told to, and reads a clock that a test may advance."""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import RLock
from typing import Any, ClassVar, Self
from uuid import uuid4
from weakref import WeakValueDictionary

from oncemq.common.clock import Clock
from oncemq.common.problems import Problem
from oncemq.contracts.adapter import (
    CONFIRMED,
    AdapterScope,
    Confirmed,
    ConsumerHealth,
    DeadLetter,
    DeadLetterRequest,
    ParkedDeadLetter,
    Refused,
    RetryRequest,
    SettleFailed,
    Sink,
    Subscription,
)
from oncemq.contracts.capabilities import Capabilities, Order
from oncemq.contracts.checks import ConsumerFacts
from oncemq.contracts.requests import Answer
from oncemq.errors import AlreadySettled, BrokerRefused, BrokerUnavailable, DeliveryVoid, Unroutable
from oncemq.message import headers as names
from oncemq.message.envelope import Delivery, Message, OutgoingMessage
from oncemq.testing.kit.publisher import AnswerInMemory


class _Group:
    """Messages of one consumer group on one topic."""

    def __init__(self) -> None:
        self.ready: deque[Message] = deque()
        self.delayed: list[tuple[datetime, int, Message]] = []
        self.dead: dict[str, DeadLetter] = {}

    def wake(self, now: datetime) -> None:
        """Move messages whose delay is over to the end of the queue."""
        while self.delayed and self.delayed[0][0] <= now:
            self.ready.append(heapq.heappop(self.delayed)[2])


@dataclass(slots=True)
class MemoryBroker:
    """Messages of one broker; adapters come and go, as connections do.

    Args:
        clock: the time of delays.
    """

    clock: Clock
    _lock: RLock = field(default_factory=RLock, repr=False)
    _groups: dict[tuple[str, str], _Group] = field(default_factory=dict, repr=False)
    _early: dict[str, list[tuple[Message, timedelta | None]]] = field(default_factory=dict, repr=False)
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False)
    # Weak: a request that nothing waits for any more needs no answer.
    awaited: WeakValueDictionary[bytes, Future[Answer]] = field(
        default_factory=WeakValueDictionary, repr=False
    )

    def group(self, subscription: Subscription) -> _Group:
        """Return a subscription's messages; the first group of a topic also gets those published before."""
        with self._lock:
            place = (subscription.topic, subscription.group)
            if place not in self._groups:
                group = self._groups[place] = _Group()
                for message, delay in self._early.pop(subscription.topic, ()):
                    self._add(group, message, delay)
            return self._groups[place]

    def publish(self, message: Message, delay: timedelta | None) -> None:
        """Store a message for every group of its topic."""
        with self._lock:
            groups = [group for (topic, _), group in self._groups.items() if topic == message.topic]
            if not groups:
                self._early.setdefault(message.topic, []).append((message, delay))
            for group in groups:
                self._add(group, message, delay)

    def send(self, group: _Group, message: Message, delay: timedelta | None = None) -> None:
        """Store a message for one group."""
        with self._lock:
            self._add(group, message, delay)

    def give_back(self, group: _Group, messages: Sequence[Message]) -> None:
        """Put messages that were delivered to the head of the queue, in order."""
        with self._lock:
            group.ready.extendleft(replace(message, redelivered=True) for message in reversed(messages))

    def next_due(self) -> datetime | None:
        """Return when the next delay is over; None if no message is delayed."""
        with self._lock:
            return min(
                (group.delayed[0][0] for group in self._groups.values() if group.delayed), default=None
            )

    def take(self, group: _Group, most: int) -> list[Message]:
        """Remove and return messages that can be delivered now, in order."""
        with self._lock:
            group.wake(self.clock.now())
            return [group.ready.popleft() for _ in range(min(most, len(group.ready)))]

    def _add(self, group: _Group, message: Message, delay: timedelta | None) -> None:
        if delay is None or delay <= timedelta(0):
            group.ready.append(message)
        else:
            heapq.heappush(group.delayed, (self.clock.now() + delay, next(self._numbers), message))


class MemoryAdapter:
    """Connection to a `MemoryBroker`; `deliver` hands over what is due, in the caller's thread.

    Args:
        broker: where the messages are.
        name: the broker's name in the app.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        delay=True,
        precise_delay=True,
        redelivered_flag=True,
        order=Order.TOPIC,
        competing=True,
        lease=False,
        cumulative_ack=True,
        browse_dead_letters=True,
        survives_restart=False,
        replies=True,
    )

    def __init__(self, broker: MemoryBroker, name: str) -> None:
        self._broker = broker
        self._name = name
        self._lock = RLock()
        self._subscriptions: dict[str, Subscription] = {}
        self._paused: set[str] = set()
        self._held: dict[Delivery, str] = {}
        self._sink: Sink | None = None
        self._connected = False
        self._generation = 1

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}>"

    @classmethod
    def build(cls, url: str, options: Mapping[str, Any], scope: AdapterScope) -> Self:
        """Build an adapter with a broker of its own; URL and options are ignored."""
        del url, options
        return cls(MemoryBroker(scope.clock), scope.broker)

    def deliver(self) -> bool:
        """Hand over every message that is due; returns whether there was any."""
        sink, some = self._sink, False
        if sink is None:
            return False
        for name, subscription in self._subscriptions.items():
            if name in self._paused:
                continue
            deliveries = self._take(name, subscription)
            if deliveries:
                some = True
                sink.deliver(deliveries, name)
        return some

    def _take(self, name: str, subscription: Subscription) -> list[Delivery]:
        with self._lock:
            room = subscription.in_flight - sum(consumer == name for consumer in self._held.values())
            messages = self._broker.take(self._broker.group(subscription), max(0, room))
            deliveries = [Delivery(message, generation=self._generation) for message in messages]
            self._held.update(dict.fromkeys(deliveries, name))
            return deliveries

    # Life

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return no problems."""
        del facts
        return ()

    def route_options(self, by: str, values: Sequence[str], options: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002
        """Return the options as they are: messages of other values are delivered, too."""
        return options

    def prepare(self, subscriptions: Sequence[Subscription]) -> None:
        """Create the groups."""
        self._connected = True
        for subscription in subscriptions:
            self._subscriptions[subscription.consumer] = subscription
            self._broker.group(subscription)

    def open(self, subscriptions: Sequence[Subscription], sink: Sink) -> None:
        """Create the groups; `deliver` works from now on."""
        if self._sink is not None:
            raise BrokerRefused(f"broker {self._name!r} in memory: this adapter is open already")
        self.prepare(subscriptions)
        self._sink = sink

    def pause(self, consumer: str) -> None:
        """Deliver no more to this consumer until `resume`."""
        self._paused.add(consumer)

    def resume(self, consumer: str) -> None:
        """Deliver again."""
        self._paused.discard(consumer)

    def health(self) -> Sequence[ConsumerHealth]:
        """Return every consumer as subscribed while open."""
        is_open = self._sink is not None
        return [
            ConsumerHealth(name, subscribed=is_open, detail="" if is_open else "not open")
            for name in self._subscriptions
        ]

    def close(self, *, grace: timedelta) -> None:
        """Return unsettled deliveries to their queues; later settlements are void."""
        del grace
        with self._lock:
            self._sink, self._connected = None, False
            self._generation += 1
            held, self._held = self._held, {}
            for name, subscription in self._subscriptions.items():
                mine = [delivery.message for delivery, consumer in held.items() if consumer == name]
                self._broker.give_back(self._broker.group(subscription), mine)

    # Settling

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Answer those that are requests, and forget these messages."""
        for delivery in deliveries:
            self._answer(delivery, failed=False)
        return [failed for delivery in deliveries if (failed := self._settle(delivery)[1]) is not None]

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Deliver these to their group again, after their delays."""
        failures = []
        for request in later:
            group, failed = self._settle(request.delivery)
            if group is None:
                failures.append(failed)
                continue
            message = _with(request.delivery.message, request.headers)
            self._broker.send(group, message, request.delay)
        return [failed for failed in failures if failed is not None]

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Keep these as dead letters of their group."""
        failures = []
        for request in dead:
            group, failed = self._settle(request.delivery)
            if group is None:
                failures.append(failed)
                continue
            self._bury(group, request.delivery.message, request.headers)
            self._answer(request.delivery, failed=True)
        return [failed for failed in failures if failed is not None]

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Return deliveries that were never started."""
        failures = []
        for delivery in reversed(deliveries):
            group, failed = self._settle(delivery)
            if group is None:
                failures.append(failed)
                continue
            self._broker.give_back(group, [delivery.message])
        return [failed for failed in failures if failed is not None]

    def extend(self, deliveries: Sequence[Delivery], by: timedelta) -> Sequence[SettleFailed]:
        """Do nothing: deliveries do not expire."""
        del deliveries, by
        return ()

    def _settle(self, delivery: Delivery) -> tuple[_Group | None, SettleFailed | None]:
        with self._lock:
            if delivery.settled:
                return None, SettleFailed(delivery, AlreadySettled(f"{delivery!r} was settled before"))
            consumer = self._held.pop(delivery, None)
            if consumer is None:
                return None, SettleFailed(delivery, DeliveryVoid(f"{delivery!r} is not ours any more"))
            delivery.settled = True
            return self._broker.group(self._subscriptions[consumer]), None

    def _bury(self, group: _Group, message: Message, added: Mapping[str, str]) -> None:
        letter = DeadLetter(uuid4().hex, _with(message, added), self._broker.clock.now())
        group.dead[letter.id] = letter

    # Publishing and administration

    def publish(
        self, topic: str, options: Mapping[str, Any], messages: Sequence[OutgoingMessage]
    ) -> Sequence[Confirmed | Refused]:
        """Publish to every group of the topic; messages for a topic without one wait for the first."""
        del options
        if not self._connected:
            raise BrokerUnavailable(f"broker {self._name!r} in memory: this adapter is not open")
        if not topic.strip():
            error = Unroutable(f"broker {self._name!r} in memory: {topic!r} cannot be a topic's name")
            return [Refused(error)] * len(messages)
        for message in messages:
            self._broker.publish(self._received(topic, message), message.delay)
        return [CONFIRMED] * len(messages)

    def _answer(self, delivery: Delivery, *, failed: bool) -> None:
        """Hand a delivery's answer to its request; the first one counts."""
        body, name = delivery.answer, delivery.message.raw
        if body is None or name is None or (delivery.settled and not failed):
            return
        waiting = self._broker.awaited.pop(name, None)
        if waiting is not None and waiting.set_running_or_notify_cancel():
            waiting.set_result(Answer(body, failed=failed))
            delivery.answered = "failure" if failed else "result"

    def _received(self, topic: str, message: OutgoingMessage) -> Message:
        return Message(
            topic=topic,
            body=message.body,
            message_id=message.message_id or uuid4().hex,
            # What only a group writes of tries before is not a producer's to say.
            headers={name: text for name, text in message.headers.items() if name not in names.HISTORY},
            keys=() if message.key is None else (message.key,),
            published_at=self._broker.clock.now(),
        )

    def redeliver(self, subscription: Subscription, message: OutgoingMessage) -> None:
        """Deliver a message to one group again, marked as redelivered, as after a lost acknowledgement."""
        again = replace(self._received(subscription.topic, message), redelivered=True)
        self._broker.send(self._broker.group(subscription), again)

    def publish_dead_letters(
        self, subscription: Subscription, burials: Sequence[ParkedDeadLetter]
    ) -> Sequence[Confirmed | Refused]:
        """Keep messages of other origin as dead letters of the group."""
        for burial in burials:
            self._bury(self._broker.group(subscription), burial.message, burial.headers)
        return [CONFIRMED] * len(burials)

    def dead_letters(self, subscription: Subscription, limit: int) -> Iterator[DeadLetter]:
        """Yield the group's dead letters, oldest first."""
        return itertools.islice(list(self._broker.group(subscription).dead.values()), limit)

    def replay_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Send dead letters to the group again; returns how many."""
        group, replayed = self._broker.group(subscription), 0
        for letter in [group.dead.pop(each) for each in ids if each in group.dead]:
            old = letter.message
            fresh = replace(
                old, headers=names.for_replay(old.headers), attempt=1, redelivered=False, first_failed_at=None
            )
            self._broker.send(group, fresh)
            replayed += 1
        return replayed

    def purge_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Delete dead letters; returns how many."""
        dead = self._broker.group(subscription).dead
        return sum(dead.pop(each, None) is not None for each in ids)

    def depth(self, subscription: Subscription) -> int | None:
        """Return how many messages wait for the group."""
        group = self._broker.group(subscription)
        return len(group.ready) + len(group.delayed)


class RequestingMemoryAdapter(MemoryAdapter):
    """Connection that carries requests, too, as the broker does in whose place it is.

    Args:
        broker: where the messages are.
        name: the broker's name in the app.
        work: lets the app work while a request waits for its answer.
    """

    capabilities: ClassVar[Capabilities] = replace(MemoryAdapter.capabilities, requests=True)

    def __init__(
        self, broker: MemoryBroker, name: str, work: Callable[[Callable[[], bool], timedelta], None]
    ) -> None:
        super().__init__(broker, name)
        self._work = work

    def request(
        self, topic: str, options: Mapping[str, Any], message: OutgoingMessage, wait: timedelta
    ) -> Future[Answer]:
        """Publish a message whose answer is awaited: who waits for it lets the app work."""
        del options
        if not self._connected:
            raise BrokerUnavailable(f"broker {self._name!r} in memory: this adapter is not open")
        name, answer = uuid4().bytes, AnswerInMemory(self._work, wait)
        self._broker.awaited[name] = answer
        self._broker.publish(replace(self._received(topic, message), raw=name), None)
        return answer


def _with(message: Message, added: Mapping[str, str]) -> Message:
    """Return the message with our headers."""
    headers = {**message.headers, **added}
    return replace(
        message,
        headers=headers,
        attempt=names.attempt_of(headers),
        redelivered=False,
        published_at=names.time_of(headers, names.PUBLISHED_AT) or message.published_at,
        first_failed_at=names.time_of(headers, names.FIRST_FAILED_AT) or message.first_failed_at,
    )
