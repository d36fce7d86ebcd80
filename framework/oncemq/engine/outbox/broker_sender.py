"""Sends one broker's part of the outbox: a thread that keeps the order of each key and deletes confirmed rows."""

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
from oncemq.ledger.messages import outbox
from oncemq.ledger.messages.outbox import Claim, Stored
from oncemq.ledger.messages.outbox_order import sent_then_sendable
from oncemq.message.envelope import OutgoingMessage
from oncemq.message.outgoing import WhenUnroutable
from oncemq.observe.fields import error_text
from oncemq.observe.observers import Observers
from oncemq.retry.backoff import RetryPolicy

Lane = tuple[str, str]
"""Topic and key."""


def lane_of(row: Stored) -> Lane | None:
    """Return the ordered sequence: one key of one topic; None for messages without a key."""
    return None if row.message.key is None else (row.topic, row.message.key)


def bar(row: Stored, barred: set[Lane]) -> None:
    """Block later messages of this key; messages without a key have no order."""
    lane = lane_of(row)
    if lane is not None:
        barred.add(lane)


def first_of_each_key(ready: list[Stored]) -> tuple[list[Stored], list[Stored]]:
    """Return messages that may be sent together, so that a refused message is never overtaken, and the rest."""
    seen: set[Lane] = set()
    wave: list[Stored] = []
    rest: list[Stored] = []
    for row in ready:
        lane = lane_of(row)
        if lane in seen:
            rest.append(row)
            continue
        if lane is not None:
            seen.add(lane)
        wave.append(row)
    return wave, rest


def by_topic(wave: Iterable[Stored]) -> Iterable[tuple[str, list[Stored]]]:
    """Group messages that can be published in one call."""
    topics: dict[str, list[Stored]] = {}
    for row in wave:
        topics.setdefault(row.topic, []).append(row)
    return topics.items()


def alike(
    refused: Iterable[tuple[Stored, BrokerError]],
) -> list[tuple[str, int, list[tuple[Stored, BrokerError]]]]:
    """Group messages that are delayed equally, for the same reason: topic, attempts so far, rows."""
    groups: dict[tuple[str, int, str], list[tuple[Stored, BrokerError]]] = {}
    for row, error in refused:
        groups.setdefault((row.topic, row.attempts, describe(error)), []).append((row, error))
    return [(topic, attempts, rows) for (topic, attempts, _), rows in groups.items()]


BACKOFF = RetryPolicy(first=timedelta(seconds=1), factor=2, max=timedelta(minutes=5))
"""Pauses between attempts for a message that its broker refuses; there is no last attempt."""

MOST_WAITING = 5000
MOST_BYTES = 32 * 1024 * 1024
"""Limits of messages and body bytes in memory; further rows stay in the outbox until due, and are taken over then."""

_ROUND = 500
_SHORTEST_WAIT = 0.02
_LONGEST_WAIT = 0.5
_AFTER_ERROR = 1.0
_LONGEST_PAUSE = 30.0

Policy = Callable[[str], WhenUnroutable]
"""Decides about a topic's unroutable messages."""

Publish = Callable[[str, Sequence[OutgoingMessage]], Sequence[BrokerError | None]]


@dataclass(frozen=True, slots=True)
class DueIn:
    """The ownership that rows must have left when a round begins; sending usually takes at most that long."""

    at_least: timedelta


@dataclass(slots=True)
class _Round:
    """Result of one round.

    Args:
        confirmed: ids of rows that the broker has confirmed.
        refused: rows that it refused, and the errors.
        unroutable: rows without a destination that need not wait for one, and the errors.
        blocked: rows that wait for an older row of their key.
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
        claim: the owner of these rows.
        publish: sends messages to a topic.
        clock: the source of time.
        observers: notified of messages that the broker refused.
        redact: masks secrets in the broker's errors.
        due_in: rows that remain ours for less than this are left to another relay.
        point: called with the name of each kill point reached.
        policy: decides about a topic's unroutable messages.
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
        """Start sending; rows put before wait until then."""
        self._thread.start()

    def step(self) -> bool:
        """Send what waits now, in this thread instead of an own one; returns whether anything waited."""
        worked = bool(self._waiting)
        while self._waiting:
            self._pause = 0.0
            self._once(self._next() or [])
        return worked

    def put(self, stored: Sequence[Stored]) -> None:
        """Accept committed rows of ours; those beyond the limit stay in the outbox until due."""
        with self._changed:
            for row in stored:
                if len(self._waiting) >= MOST_WAITING or self._bytes >= MOST_BYTES:
                    break
                self._waiting.append(row)
                self._bytes += len(row.message.body)
            self._changed.notify()

    def waiting(self) -> int:
        """Return how many messages have not been sent yet."""
        return len(self._waiting) + len(self._blocked) + self._sending

    def finish(self) -> None:
        """Send the waiting rows, then end."""
        with self._changed:
            self._finishing = True
            self._changed.notify()

    def join(self, seconds: float) -> None:
        """Wait for the end, at most this long."""
        self._thread.join(seconds)

    def _loop(self) -> None:
        while (batch := self._next()) is not None:
            self._once(batch)

    def _once(self, batch: list[Stored]) -> None:
        try:
            self._round(batch)
        except Exception as error:
            self._observers.failed(f"relaying {len(batch)} messages to broker {self._broker}", error)
            # Their state is unknown now; a relay takes them over when they are due.
            self._pause = _AFTER_ERROR
        finally:
            self._sending = 0

    def _next(self) -> list[Stored] | None:
        """Wait for work; None when it is time to end."""
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
        # Rows that waited here until due were taken over by ourselves, and are here twice.
        return sorted({row.id: row for row in batch}.values(), key=lambda row: row.id)

    def _round(self, batch: list[Stored]) -> None:
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
                errors = self._publish(topic, [row.message for row in messages])
                for row, error in zip(messages, errors, strict=True):
                    if error is None:
                        found.confirmed.append(row.id)
                        continue
                    if isinstance(error, Unroutable) and self._policy(topic) is not WhenUnroutable.WAIT:
                        found.unroutable.append((row, error))
                        continue
                    found.refused.append((row, error))
                    bar(row, barred)
            # Messages behind a refused one are left to the relay that takes it over.
            ready = [row for row in ready if lane_of(row) not in barred]
        return found

    def _sort_out(self, batch: list[Stored], found: _Round, barred: set[Lane]) -> list[Stored]:
        """Return the rows that may be sent now."""
        until = self._clock.now() + self._at_least
        ours = sent_then_sendable(self._engine, self._claim, self._confirmed, batch, until)
        self._confirmed = []
        ready = []
        for row in batch:
            if row.id not in ours:
                bar(row, barred)
            elif ours[row.id] and lane_of(row) not in barred:
                ready.append(row)
            else:
                found.blocked.append(row)
                bar(row, barred)
        barred.clear()
        return ready

    def _settle(self, found: _Round) -> None:
        """Delete confirmed rows, and postpone or give up refused ones, in one transaction."""
        if not found.refused and not found.unroutable:
            # With more to send, the next round deletes them: it begins now, and with a statement anyway.
            if self._confirmed and not self._waiting:
                sent_then_sendable(self._engine, self._claim, self._confirmed, (), self._clock.now())
                self._confirmed = []
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
        ids = [row.id for row, _ in failed]
        drops = self._policy(topic) is WhenUnroutable.DROP
        if drops:
            outbox.sent(connection, self._claim, ids)
        else:
            text = self._redact(error_text(error))[:MAX_ERROR_TEXT]
            outbox.dead_letter(connection, self._claim, ids, self._clock.now(), text)
        names = [row.message.message_id or "" for row, _ in failed]
        self._observers.unroutable(topic, names, dropped=drops, error=error)

    def _put_off(
        self, connection: Connection, topic: str, attempts: int, failed: list[tuple[Stored, BrokerError]]
    ) -> None:
        pause, error = BACKOFF.pause(attempts + 1, self._draw), failed[0][1]
        if isinstance(error, BrokerUnavailable):
            # The error does not concern the message: when the broker is back, none should wait long.
            pause = min(pause, timedelta(seconds=_LONGEST_PAUSE))
        text = self._redact(error_text(error))[:MAX_ERROR_TEXT]
        ids = [row.id for row, _ in failed]
        outbox.refused(connection, self._claim, ids, self._clock.now() + pause, text)
        self._observers.outbox_refused(topic, len(ids), tries=attempts + 1, next_in=pause, error=error)
