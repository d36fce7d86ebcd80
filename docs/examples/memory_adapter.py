"""An adapter in about 150 lines of code: a broker in the memory of this process, which passes the shipped suite."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count, islice
from threading import RLock, Timer
from typing import Any, ClassVar, Self

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
from oncemq.errors import AlreadySettled, BrokerUnavailable, DeliveryVoid, Unroutable
from oncemq.message import headers as names
from oncemq.message.envelope import Delivery, Message, OutgoingMessage


@dataclass(eq=False)
class Group:
    """What one consumer group has at the broker: its queue, its dead letters, its members."""

    ready: deque[Message] = field(default_factory=deque)
    dead: dict[str, tuple[Message, datetime]] = field(default_factory=dict)
    members: list["Member"] = field(default_factory=list)


@dataclass(eq=False)
class Member:
    """One open subscription: what it holds unsettled, in the order of delivery."""

    group: Group
    subscription: Subscription
    sink: Sink
    held: dict[int, Delivery] = field(default_factory=dict)
    paused: bool = False


class Broker:
    """The broker itself; here a few queues behind one lock, elsewhere a connection to a server."""

    all: ClassVar[dict[str, "Broker"]] = {}

    def __init__(self) -> None:
        self.lock = RLock()
        self.groups: dict[tuple[str, str], Group] = {}
        self.numbers = count(1)

    def group(self, subscription: Subscription) -> Group:
        """Return a group's places, made on first use: from then on it misses nothing."""
        return self.groups.setdefault((subscription.topic, subscription.group), Group())

    def add(self, group: Group, message: Message, delay: timedelta | None = None) -> None:
        """Put a message into a group's queue, now or later."""
        if delay:
            timer = Timer(delay.total_seconds(), self.add, (group, message))
            timer.daemon = True
            timer.start()
            return
        with self.lock:
            group.ready.append(message)
            self.deliver(group)

    def deliver(self, group: Group) -> None:
        """Hand out what members have room for."""
        for member in group.members:
            while group.ready and not member.paused and len(member.held) < member.subscription.in_flight:
                delivery = Delivery(group.ready.popleft(), token=member)
                member.held[id(delivery)] = delivery
                member.sink.deliver([delivery], member.subscription.consumer)


class MemoryAdapter:
    """One connection to one broker."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        delay=True,
        precise_delay=True,
        redelivered_flag=True,
        order=Order.TOPIC,
        competing=True,
        lease=False,
        cumulative_ack=False,
        browse_dead_letters=True,
        survives_restart=False,
    )

    def __init__(self, broker: Broker, scope: AdapterScope) -> None:
        self._broker, self._clock = broker, scope.clock
        self._open = False
        self._members: dict[str, Member] = {}

    @classmethod
    def build(cls, url: str, options: Mapping[str, Any], scope: AdapterScope) -> Self:
        """Make one; this is where URL and options are refused with a ConfigError."""
        del options
        return cls(Broker.all.setdefault(url, Broker()), scope)

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Everything is safe here, but that nothing outlives the process."""
        del facts
        return ()

    def prepare(self, subscriptions: Sequence[Subscription]) -> None:
        """Connect and declare; `BrokerUnavailable` and `BrokerRefused` are raised here."""
        with self._broker.lock:
            self._open = True
            for subscription in subscriptions:
                self._broker.group(subscription)

    def open(self, subscriptions: Sequence[Subscription], sink: Sink) -> None:
        """Prepare, and consume."""
        self.prepare(subscriptions)
        with self._broker.lock:
            for subscription in subscriptions:
                member = Member(self._broker.group(subscription), subscription, sink)
                self._members[subscription.consumer] = member
                member.group.members.append(member)
                self._broker.deliver(member.group)

    def _settle(self, delivery: Delivery) -> Member | SettleFailed:
        """Take a delivery out of our hands; the lock is held."""
        member: Member = delivery.token
        if delivery.settled:
            return SettleFailed(delivery, AlreadySettled("this delivery has been settled before"))
        if member.held.pop(id(delivery), None) is None:
            return SettleFailed(delivery, DeliveryVoid("the adapter was closed; the message comes again"))
        delivery.settled = True
        return member

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """The message is done."""
        with self._broker.lock:
            settled = [self._settle(each) for each in deliveries]
            for member in {each for each in settled if isinstance(each, Member)}:
                self._broker.deliver(member.group)
        return [each for each in settled if isinstance(each, SettleFailed)]

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """The message comes again, to this group alone."""
        failed = []
        with self._broker.lock:
            for each in later:
                member = self._settle(each.delivery)
                if isinstance(member, SettleFailed):
                    failed.append(member)
                    continue
                self._broker.add(member.group, _copy(each.delivery.message, each.headers), each.delay)
                self._broker.deliver(member.group)
        return failed

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """The message lies among the group's dead letters."""
        failed = []
        with self._broker.lock:
            for each in dead:
                member = self._settle(each.delivery)
                if isinstance(member, SettleFailed):
                    failed.append(member)
                    continue
                self._bury(member.group, _copy(each.delivery.message, each.headers))
                self._broker.deliver(member.group)
        return failed

    def publish_dead_letters(
        self, subscription: Subscription, burials: Sequence[ParkedDeadLetter]
    ) -> Sequence[Confirmed | Refused]:
        """The same for what is no delivery any more."""
        with self._broker.lock:
            for each in burials:
                self._bury(self._broker.group(subscription), _copy(each.message, each.headers))
        return [CONFIRMED for _ in burials]

    def _bury(self, group: Group, message: Message) -> None:
        group.dead[str(next(self._broker.numbers))] = (message, self._clock.now())

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """What was never started goes to the head of the queue, in order."""
        failed = []
        with self._broker.lock:
            for delivery in reversed(deliveries):
                member = self._settle(delivery)
                if isinstance(member, SettleFailed):
                    failed.append(member)
                else:
                    member.group.ready.appendleft(replace(delivery.message, redelivered=True))
            for group in {delivery.token.group for delivery in deliveries}:
                self._broker.deliver(group)
        return failed

    def publish(
        self, topic: str, options: Mapping[str, Any], messages: Sequence[OutgoingMessage]
    ) -> Sequence[Confirmed | Refused]:
        """One answer for each message, when the broker has it."""
        del options
        with self._broker.lock:
            if not self._open:
                raise BrokerUnavailable("the adapter is not connected")
            groups = [group for (name, _), group in self._broker.groups.items() if name == topic]
            if not groups:
                return [Refused(Unroutable(f"no group consumes {topic!r}")) for _ in messages]
            for each in messages:
                # What only a group writes of earlier tries is not a producer's to say.
                headers = {name: text for name, text in each.headers.items() if name not in names.HISTORY}
                keys = () if each.key is None else (each.key,)
                now = self._clock.now()
                message = Message(topic, each.body, each.message_id, headers, keys, published_at=now)
                for group in groups:
                    self._broker.add(group, message, each.delay)
        return [CONFIRMED for _ in messages]

    def extend(self, deliveries: Sequence[Delivery], by: timedelta) -> Sequence[SettleFailed]:
        """There are no leases."""
        del deliveries, by
        return ()

    def pause(self, consumer: str) -> None:
        """Receive no more."""
        self._members[consumer].paused = True

    def resume(self, consumer: str) -> None:
        """Receive again."""
        member = self._members[consumer]
        with self._broker.lock:
            member.paused = False
            self._broker.deliver(member.group)

    def health(self) -> Sequence[ConsumerHealth]:
        """Every open consumer is subscribed."""
        return [ConsumerHealth(name, subscribed=self._open) for name in self._members]

    def dead_letters(self, subscription: Subscription, limit: int) -> Iterator[DeadLetter]:
        """Oldest first; nothing is taken away."""
        found = list(self._broker.group(subscription).dead.items())
        for number, (message, dead_at) in islice(found, limit):
            yield DeadLetter(number, message, dead_at)

    def replay_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """To the group again, with its own headers and a fresh attempt."""
        with self._broker.lock:
            group = self._broker.group(subscription)
            found = [group.dead.pop(number)[0] for number in ids if number in group.dead]
            for message in found:
                self._broker.add(
                    group, replace(message, headers=names.for_replay(message.headers), attempt=1)
                )
        return len(found)

    def purge_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Gone for ever."""
        dead = self._broker.group(subscription).dead
        return sum(dead.pop(number, None) is not None for number in ids)

    def depth(self, subscription: Subscription) -> int | None:
        """How many messages wait."""
        return len(self._broker.group(subscription).ready)

    def close(self, *, grace: timedelta) -> None:
        """What is unsettled goes back, to the head and in order; deliveries of ours are void from now on."""
        del grace
        with self._broker.lock:
            self._open = False
            for member in self._members.values():
                if member in member.group.members:
                    member.group.members.remove(member)
                back = [replace(each.message, redelivered=True) for each in member.held.values()]
                member.group.ready.extendleft(reversed(back))
                member.held.clear()
                self._broker.deliver(member.group)


def _copy(message: Message, added: Mapping[str, str]) -> Message:
    headers = {**message.headers, **added}
    failed_at = names.time_of(headers, names.FIRST_FAILED_AT)
    return replace(
        message,
        headers=headers,
        attempt=names.attempt_of(headers),
        redelivered=False,
        first_failed_at=failed_at,
        published_at=names.time_of(headers, names.PUBLISHED_AT) or message.published_at,
    )
