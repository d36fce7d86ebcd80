"""A broker as simple as one can be: lists of messages, moved by the test's own hand, with faults to order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from oncemq.contracts.adapter import (
    CONFIRMED,
    Confirmed,
    DeadLetterRequest,
    ParkedDeadLetter,
    Refused,
    RetryRequest,
    SettleFailed,
    Subscription,
)
from oncemq.errors import AlreadySettled, BrokerUnavailable, DeliveryVoid
from oncemq.message.envelope import Delivery, Message
from oncemq.message.headers import FIRST_FAILED_AT, REASON, attempt_of, time_of
from oncemq.testing.fake_clock import FakeClock
from oncemq.testing.scripted import ScriptedAdapter


@dataclass(frozen=True, slots=True)
class Buried:
    """One dead letter.

    Args:
        message: the original.
        reason: why it lies here.
    """

    message: Message
    reason: str


class ModelBroker:
    """Where every copy of every message is: waiting, held by the process, delayed, or dead.

    Attributes:
        waiting: not delivered yet, in order.
        held: delivered and not settled, by the delivery's number.
        delayed: with the moment from which they may be delivered again.
        dead: dead letters, in order.
        tried: messages of which a copy with one more attempt was published; a process that dies tells nothing of it.
        wrong: what no process may do.
    """

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._numbers = 0
        self.waiting: list[Message] = []
        self.held: dict[int, Message] = {}
        self.delayed: list[tuple[float, Message]] = []
        self.dead: list[Buried] = []
        self.tried: list[Message] = []
        self.wrong: list[str] = []
        self.line = Line(self)

    def connect(self) -> "Line":
        """Return the adapter of a new process; what the last one held waits again."""
        self.line.cut()
        self.line = Line(self)
        return self.line

    def publish(self, message: Message) -> None:
        """Take a message."""
        self.waiting.append(message)

    def deliver(self, place: int) -> None:
        """Deliver the message that waits at this place; 0 keeps the order."""
        self._numbers += 1
        message = self.waiting.pop(place)
        self.held[self._numbers] = message
        self.line.send(message, self._numbers)

    def wake(self) -> None:
        """Let those wait for delivery whose delay is over, the earliest first."""
        now = self._clock.monotonic()
        due = sorted((entry for entry in self.delayed if entry[0] <= now), key=lambda entry: entry[0])
        self.delayed = [entry for entry in self.delayed if entry[0] > now]
        self.waiting += [message for _, message in due]

    def unsettle(self) -> None:
        """Let everything wait again that was delivered and not settled, before all others."""
        again = [replace(self.held[number], redelivered=True) for number in sorted(self.held)]
        self.waiting[:0] = again
        self.held.clear()

    def later(self, message: Message, delay: timedelta) -> None:
        """Keep a message for a while."""
        self.delayed.append((self._clock.monotonic() + delay.total_seconds(), message))

    def copies(self) -> list[Message]:
        """Return every message that is or will be delivered."""
        return [*self.waiting, *self.held.values(), *(message for _, message in self.delayed)]


class Line(ScriptedAdapter):
    """A process's connection to the broker.

    Attributes:
        refuse: how many calls from now on fail without an effect, by the call's name.
        half: calls that are done by half before the connection is lost: published, but not acknowledged.
        struck: what of this has really happened, by its kind and call.
    """

    def __init__(self, broker: ModelBroker) -> None:
        super().__init__()
        self._broker = broker
        self._open = True
        self.refuse: dict[str, int] = {}
        self.half: set[str] = set()
        self.struck: set[tuple[str, str]] = set()

    def send(self, message: Message, number: int) -> None:
        """Deliver a message."""
        if self._sink is not None:
            delivery = Delivery(message, number, self._generation)
            self._sink.deliver([delivery], self.subscriptions[0].consumer)

    def cut(self) -> None:
        """The process at this end is no more."""
        self._open = False
        self._sink = None
        self._broker.unsettle()

    def lose(self) -> None:
        """Lose the connection, and have a new one at once."""
        self._broker.unsettle()
        self.lose_connection()

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Forget these messages; done by half, the broker never hears of it."""
        if self._fails("acknowledge"):
            return [SettleFailed(each, BrokerUnavailable("away")) for each in deliveries]
        if self._halved("acknowledge"):
            return [SettleFailed(each, DeliveryVoid("the connection was lost")) for each in deliveries]
        return [failed for each in deliveries if (failed := self._end(each)) is not None]

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Keep these messages for later, with what their headers say."""
        if self._fails("retry"):
            return [SettleFailed(each.delivery, BrokerUnavailable("away")) for each in later]
        for each in later:
            if self._void(each.delivery) is None:
                copy = _again(each)
                if copy.attempt > each.delivery.message.attempt:
                    self._broker.tried.append(each.delivery.message)
                self._broker.later(copy, each.delay)
        return self._settled("retry", [each.delivery for each in later])

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Bury these messages."""
        if self._fails("dead_letter"):
            return [SettleFailed(each.delivery, BrokerUnavailable("away")) for each in dead]
        for each in dead:
            if self._void(each.delivery) is None:
                self._broker.dead.append(Buried(each.delivery.message, each.headers[REASON]))
        return self._settled("dead_letter", [each.delivery for each in dead])

    def publish_dead_letters(
        self, subscription: Subscription, burials: Sequence[ParkedDeadLetter]
    ) -> Sequence[Confirmed | Refused]:
        """Bury messages that were parked."""
        self._broker.dead += [Buried(request.message, request.headers[REASON]) for request in burials]
        return [CONFIRMED] * len(burials)

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """No one gives back here: processes are killed."""
        self._broker.wrong.append(f"{len(deliveries)} deliveries were given back")
        return []

    def _settled(self, call: str, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        if self._halved(call):
            return [SettleFailed(each, DeliveryVoid("the connection was lost")) for each in deliveries]
        return [failed for each in deliveries if (failed := self._end(each)) is not None]

    def _fails(self, call: str) -> bool:
        if not self._open:
            self._broker.wrong.append(f"{call} by a process that is dead")
        left = self.refuse.get(call, 0)
        self.refuse[call] = max(0, left - 1)
        if left:
            self.struck.add(("broker_away", call))
        return left > 0

    def _halved(self, call: str) -> bool:
        if call not in self.half:
            return False
        self.half.discard(call)
        self.struck.add(("half", call))
        self.lose()
        return True

    def _end(self, delivery: Delivery) -> SettleFailed | None:
        error = self._void(delivery)
        if error is None and self._broker.held.pop(delivery.token, None) is None:
            self._broker.wrong.append(f"settled twice: {delivery!r}")
            error = AlreadySettled("settled before")
        return None if error is None else SettleFailed(delivery, error)

    def _void(self, delivery: Delivery) -> DeliveryVoid | None:
        current = self._open and delivery.generation == self._generation
        return None if current else DeliveryVoid("its connection is gone")


def _again(later: RetryRequest) -> Message:
    headers = {**later.delivery.message.headers, **later.headers}
    return replace(
        later.delivery.message,
        headers=headers,
        attempt=attempt_of(headers),
        first_failed_at=time_of(headers, FIRST_FAILED_AT),
    )
