"""One broker's share of the outbox: a thread that sends in the order of each key and deletes what is confirmed."""

import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy import Connection, Engine

from oncemq.common.clock import Clock
from oncemq.common.error_text import MAX_ERROR_TEXT, describe
from oncemq.errors import BrokerError, BrokerUnavailable, Unroutable
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.messages import outbox
from oncemq.ledger.messages.outbox import Claim, Stored
from oncemq.ledger.messages.outbox_order import sendable
from oncemq.message.envelope import OutgoingMessage
from oncemq.message.outgoing import WhenUnroutable
from oncemq.observe.fields import error_text
from oncemq.observe.observers import Observers
from oncemq.retry.backoff import RetryPolicy

Lane = tuple[str, str]
"""Topic and key."""


def lane_of(one: Stored) -> Lane | None:
    """Return what has an order: one key of one topic; None for messages without a key."""
    return None if one.message.key is None else (one.topic, one.message.key)


def bar(one: Stored, barred: set[Lane]) -> None:
    """Let nothing later of this key be sent; messages without a key have no order."""
    lane = lane_of(one)
    if lane is not None:
        barred.add(lane)


def first_of_each_key(ready: list[Stored]) -> tuple[list[Stored], list[Stored]]:
    """Return what may be sent together, so that a refused message is never overtaken, and the rest."""
    seen: set[Lane] = set()
    wave: list[Stored] = []
    rest: list[Stored] = []
    for one in ready:
        lane = lane_of(one)
        if lane in seen:
            rest.append(one)
            continue
        if lane is not None:
            seen.add(lane)
        wave.append(one)
    return wave, rest


def by_topic(wave: Iterable[Stored]) -> Iterable[tuple[str, list[Stored]]]:
    """Group what can be published in one call."""
    topics: dict[str, list[Stored]] = {}
    for one in wave:
        topics.setdefault(one.topic, []).append(one)
    return topics.items()


def alike(
    refused: Iterable[tuple[Stored, BrokerError]],
) -> list[tuple[str, int, list[tuple[Stored, BrokerError]]]]:
    """Group what is put off equally long, for the same reason: topic, tries so far, rows."""
    groups: dict[tuple[str, int, str], list[tuple[Stored, BrokerError]]] = {}
    for one, error in refused:
        groups.setdefault((one.topic, one.attempts, describe(error)), []).append((one, error))
    return [(topic, attempts, rows) for (topic, attempts, _), rows in groups.items()]


BACKOFF = RetryPolicy(first=timedelta(seconds=1), factor=2, max=timedelta(minutes=5))
"""The pauses between the tries of a message that its broker does not take; there is no last try."""

MOST_WAITING = 5000
MOST_BYTES = 32 * 1024 * 1024
"""Messages and bytes of bodies in memory; more stay in the outbox until they are due, and are taken over there."""

_ROUND = 500
_SHORTEST_WAIT = 0.02
_LONGEST_WAIT = 0.5
_AFTER_ERROR = 1.0
_LONGEST_PAUSE = 30.0

Policy = Callable[[str], WhenUnroutable]
"""What becomes of a topic's messages for which the broker has no place."""

Publish = Callable[[str, Sequence[OutgoingMessage]], Sequence[BrokerError | None]]


@dataclass(frozen=True, slots=True)
class DueIn:
    """How long rows must still be ours for a round to begin with them; sending takes that long at most, usually."""

    at_least: timedelta


@dataclass(slots=True)
class _Round:
    """What came of one round.

    Args:
        confirmed: numbers of rows whose broker has them.
        refused: rows that it did not take, and why.
        unroutable: rows for which the broker has no place and that need not wait for one, and why.
        blocked: rows that wait for an older one of their key.
    """

    confirmed: list[int] = field(default_factory=list)
    refused: list[tuple[Stored, BrokerError]] = field(default_factory=list)
    unroutable: list[tuple[Stored, BrokerError]] = field(default_factory=list)
    blocked: list[Stored] = field(default_factory=list)


class BrokerSender:
    """Sends messages to one broker.

    Args:
        broker: the broker's name in the app.
        engine: the database with the outbox.
        claim: whose rows these are.
        publish: sends messages to a topic.
        clock: where time comes from.
        observers: told of messages that the broker did not take.
        redact: masks secrets in what the broker said.
        due_in: rows that are ours for less are left to whoever takes them over.
        point: told how far messages have come.
        policy: what becomes of a topic's unroutable messages.
    """

    def __init__(
        self,
        broker: str,
        engine: Engine,
        claim: Claim,
        publish: Publish,
        clock: Clock,
        observers: Observers,
        redact: Callable[[str], str],
        due_in: DueIn,
        point: Callable[[str], None],
        policy: Policy = lambda _: WhenUnroutable.WAIT,
    ) -> None:
        self._policy = policy
        self._broker = broker
        self._engine = engine
        self._claim = claim
        self._publish = publish
        self._clock = clock
        self._observers = observers
        self._redact = redact
        self._at_least = due_in.at_least
        self._point = point
        self._waiting: deque[Stored] = deque()
        self._blocked: list[Stored] = []
        self._confirmed: list[int] = []
        self._sending = 0
        self._bytes = 0
        self._pause = 0.0
        self._look_again = _SHORTEST_WAIT
        self._changed = threading.Condition()
        self._finishing = False
        self._draw = random.Random()  # noqa: S311 - jitter
        self._thread = threading.Thread(target=self._loop, name=f"oncemq-outbox-{broker}", daemon=True)

    def start(self) -> None:
        """Begin; what is put waits until then."""
        self._thread.start()

    def put(self, stored: Sequence[Stored]) -> None:
        """Take rows of ours that are committed; those beyond the limit stay where they are until they are due."""
        with self._changed:
            for one in stored:
                if len(self._waiting) >= MOST_WAITING or self._bytes >= MOST_BYTES:
                    break
                self._waiting.append(one)
                self._bytes += len(one.message.body)
            self._changed.notify()

    def waiting(self) -> int:
        """Return how many messages have not been sent yet."""
        return len(self._waiting) + len(self._blocked) + self._sending

    def finish(self) -> None:
        """Send what is there, and end."""
        with self._changed:
            self._finishing = True
            self._changed.notify()

    def join(self, seconds: float) -> None:
        """Wait for the end, so long at most."""
        self._thread.join(seconds)

    def _loop(self) -> None:
        while (batch := self._next()) is not None:
            try:
                self._round(batch)
            except Exception as error:
                self._observers.failed(f"relaying {len(batch)} messages to broker {self._broker}", error)
                # Nothing is known about them now; whoever relays takes them over when they are due.
                self._pause = _AFTER_ERROR
            finally:
                self._sending = 0

    def _next(self) -> list[Stored] | None:
        """Wait for something to do; None when it is time to end."""
        with self._changed:
            if self._pause and not self._finishing:
                self._changed.wait_for(lambda: self._finishing, self._pause)
            elif not self._finishing and not self._waiting:
                self._changed.wait(self._look_again if self._blocked or self._confirmed else None)
            if self._finishing and not self._waiting:
                return None
            batch, self._blocked = self._blocked, []
            while self._waiting and len(batch) < _ROUND:
                batch.append(self._waiting.popleft())
                self._bytes -= len(batch[-1].message.body)
            self._sending = len(batch)
        # What waited here until it was due has been taken over by ourselves, and is here once more.
        return sorted({one.id: one for one in batch}.values(), key=lambda one: one.id)

    def _round(self, batch: list[Stored]) -> None:
        self._settle(_Round())
        found = self._send(batch)
        self._point("outbox-published")
        self._confirmed += found.confirmed
        self._settle(found)
        self._blocked = found.blocked
        away = any(isinstance(error, BrokerUnavailable) for _, error in found.refused)
        self._pause = min(_LONGEST_PAUSE, max(_AFTER_ERROR, 2 * self._pause)) if away else 0.0
        stuck = len(found.blocked) == len(batch)
        self._look_again = min(_LONGEST_WAIT, 2 * self._look_again) if stuck else _SHORTEST_WAIT

    def _send(self, batch: list[Stored]) -> _Round:
        found, barred = _Round(), set[Lane]()
        ready = self._sort_out(batch, found, barred)
        while ready:
            wave, ready = first_of_each_key(ready)
            for topic, messages in by_topic(wave):
                errors = self._publish(topic, [one.message for one in messages])
                for one, error in zip(messages, errors, strict=True):
                    if error is None:
                        found.confirmed.append(one.id)
                        continue
                    if isinstance(error, Unroutable) and self._policy(topic) is not WhenUnroutable.WAIT:
                        found.unroutable.append((one, error))
                        continue
                    found.refused.append((one, error))
                    bar(one, barred)
            # What waits behind a refused one is left to whoever takes that over.
            ready = [one for one in ready if lane_of(one) not in barred]
        return found

    def _sort_out(self, batch: list[Stored], found: _Round, barred: set[Lane]) -> list[Stored]:
        """Return what may be sent now."""
        until = self._clock.now() + self._at_least
        with self._engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            ours = sendable(connection, self._claim, batch, until)
        ready = []
        for one in batch:
            if one.id not in ours:
                bar(one, barred)
            elif ours[one.id] and lane_of(one) not in barred:
                ready.append(one)
            else:
                found.blocked.append(one)
                bar(one, barred)
        barred.clear()
        return ready

    def _settle(self, found: _Round) -> None:
        """Delete what is confirmed and put off or give up what was refused, in one transaction."""
        if not self._confirmed and not found.refused and not found.unroutable:
            return
        puts_off = alike(found.refused)
        with self._engine.begin() as connection:
            if self._confirmed:
                outbox.sent(connection, self._claim, self._confirmed)
            for topic, attempts, failed in puts_off:
                self._put_off(connection, topic, attempts, failed)
            for topic, _, failed in alike(found.unroutable):
                self._give_up(connection, topic, failed)
        self._confirmed = []

    def _give_up(self, connection: Connection, topic: str, failed: list[tuple[Stored, BrokerError]]) -> None:
        error = failed[0][1]
        ids = [one.id for one, _ in failed]
        drops = self._policy(topic) is WhenUnroutable.DROP
        if drops:
            outbox.sent(connection, self._claim, ids)
        else:
            text = self._redact(error_text(error))[:MAX_ERROR_TEXT]
            outbox.dead_letter(connection, self._claim, ids, self._clock.now(), text)
        names = [one.message.message_id or "" for one, _ in failed]
        self._observers.unroutable(topic, names, dropped=drops, error=error)

    def _put_off(
        self, connection: Connection, topic: str, attempts: int, failed: list[tuple[Stored, BrokerError]]
    ) -> None:
        pause, error = BACKOFF.pause(attempts + 1, self._draw), failed[0][1]
        if isinstance(error, BrokerUnavailable):
            # It says nothing about the message: when the broker is back, none of them has long to wait.
            pause = min(pause, timedelta(seconds=_LONGEST_PAUSE))
        text = self._redact(error_text(error))[:MAX_ERROR_TEXT]
        ids = [one.id for one, _ in failed]
        outbox.refused(connection, self._claim, ids, self._clock.now() + pause, text)
        self._observers.outbox_refused(topic, len(ids), tries=attempts + 1, next_in=pause, error=error)
