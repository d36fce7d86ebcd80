"""A broker in memory that redelivers what it was not told about, with one front for each process that consumes."""

import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from oncemq.contracts.adapter import DeadLetterRequest, RetryRequest, SettleFailed
from oncemq.errors import AlreadySettled, DeliveryVoid
from oncemq.message.envelope import Delivery, Message
from oncemq.message.headers import FIRST_FAILED_AT, REASON, attempt_of, time_of
from oncemq.testing.scripted import ScriptedAdapter

TAG = "tag"
"""The header that tells copies of a message apart."""


class Front(ScriptedAdapter):
    """One process's connection to the broker."""

    def __init__(self, broker: "RandomBroker") -> None:
        super().__init__()
        self.broker = broker
        self.generation = 1
        self.held: dict[int, Delivery] = {}

    def send(self, message: Message) -> None:
        """Deliver `message` to this process."""
        number = self.broker.next_number()
        delivery = Delivery(message, token=number, generation=self.generation)
        self.held[number] = delivery
        sink, consumer = self._sink, self.subscriptions[0].consumer
        if sink is not None:
            sink.deliver([delivery], consumer)

    def lose(self) -> None:
        """Lose the connection; everything unsettled comes again, in order, on the next one."""
        with self.broker.lock:
            lost, self.generation = self.generation, self.generation + 1
            again = [self.held[number].message for number in sorted(self.held)]
            self.held.clear()
            if self._sink is not None:
                self._sink.lost(self.subscriptions[0].consumer, lost)
            for message in again:
                self.send(replace(message, redelivered=True))

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Take acknowledgements, or lose one as a crash would: the message comes again."""
        failed = []
        with self.broker.lock:
            for delivery in deliveries:
                error = self._taken(delivery)
                if error is None and self.broker.crashes():
                    self.broker.redeliver(replace(delivery.message, redelivered=True))
                    error = DeliveryVoid("the acknowledgement was lost")
                elif error is None:
                    self.broker.end(delivery, "acknowledged")
                if error is not None:
                    failed.append(SettleFailed(delivery, error))
        return failed

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Deliver again at once, with the attempt that the headers say."""
        failed = []
        with self.broker.lock:
            for each in later:
                error = self._taken(each.delivery)
                if error is not None:
                    failed.append(SettleFailed(each.delivery, error))
                    continue
                message = each.delivery.message
                headers = {**message.headers, **each.headers}
                self.broker.retries[message.headers[TAG]] += 1
                self.broker.redeliver(
                    replace(
                        message,
                        headers=headers,
                        attempt=attempt_of(headers),
                        first_failed_at=time_of(headers, FIRST_FAILED_AT),
                    )
                )
        return failed

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Take dead letters."""
        failed = []
        with self.broker.lock:
            for each in dead:
                error = self._taken(each.delivery)
                if error is None:
                    self.broker.end(each.delivery, f"dead: {each.headers[REASON]}")
                else:
                    failed.append(SettleFailed(each.delivery, error))
        return failed

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Keep what no one will ask for: the run is over."""
        del deliveries
        return []

    def _taken(self, delivery: Delivery) -> Exception | None:
        if delivery.generation != self.generation:
            return DeliveryVoid("its connection is gone")
        if self.held.pop(delivery.token, None) is None:
            self.broker.wrong.append(f"settled twice: {delivery!r}")
            return AlreadySettled("settled before")
        return None


class RandomBroker:
    """What all fronts share.

    Args:
        seed: of every choice.
        processes: how many fronts.
        crash: the share of acknowledgements that are lost.

    Attributes:
        ended: what became of each copy, by its tag.
        retries: how often each copy was charged an attempt, by its tag.
        wrong: what no process may do.
    """

    def __init__(self, seed: int, processes: int, crash: float) -> None:
        self._draw = random.Random(seed)
        self._crash = crash
        self._number = 0
        self.lock = threading.RLock()
        self._ended = threading.Condition(self.lock)
        self.fronts = [Front(self) for _ in range(processes)]
        self.ended: dict[str, str] = {}
        self.retries: Counter[str] = Counter()
        self.wrong: list[str] = []

    def next_number(self) -> int:
        """Return the next delivery's number."""
        self._number += 1
        return self._number

    def crashes(self) -> bool:
        """Return whether this acknowledgement is lost."""
        return self._draw.random() < self._crash

    def publish(self, message: Message) -> None:
        """Deliver a message to one of the processes."""
        with self.lock:
            self._draw.choice(self.fronts).send(message)

    redeliver = publish

    def end(self, delivery: Delivery, how: str) -> None:
        """Note the end of a copy."""
        tag = delivery.message.headers[TAG]
        if tag in self.ended:
            self.wrong.append(f"{tag} ended twice: {self.ended[tag]}, {how}")
        self.ended[tag] = how
        self._ended.notify_all()

    def wait_for(self, tags: set[str], within: timedelta) -> set[str]:
        """Return those of `tags` that have not ended in time."""
        with self.lock:
            self._ended.wait_for(lambda: tags <= self.ended.keys(), within.total_seconds())
            return tags - self.ended.keys()
