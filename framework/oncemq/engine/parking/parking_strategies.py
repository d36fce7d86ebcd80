"""Strategies around a chain that may park messages: held keys before it, parked rows after it."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar, Final

from sqlalchemy import Engine

from oncemq.common.clock import Clock
from oncemq.contracts.adapter import Adapter
from oncemq.contracts.strategy import Strategy, Traits
from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import (
    PROCEED,
    VOID,
    Culprits,
    Outcome,
    Place,
    Verdict,
    parked,
    reject,
    wait,
)
from oncemq.engine.parking.instance_messages import InstanceMessages
from oncemq.engine.parking.parked_source import ParkedMessages, Ticket, Waiting
from oncemq.engine.parking.settlement_router import FULL
from oncemq.engine.plan import ConsumerPlan
from oncemq.ledger.messages import held_letters, parking
from oncemq.ledger.messages.parked_row import Parked, unstorable
from oncemq.ledger.messages.parking import HELD_AT_ONCE
from oncemq.ledger.sql.column_types import storable
from oncemq.message.envelope import Delivery
from oncemq.retry.backoff import pause_before_turn

UNSTORABLE: Final = "unstorable"
"""The reason for a message that cannot be stored in the ledger."""
_LOOK_AGAIN: Final = timedelta(seconds=30)
"""After this a message that waits for its turn in its own order is looked at again, while its key is held."""
_DEAD: Final = frozenset({Outcome.REJECT, Outcome.CONFLICT})
_AT_ONCE: Final = 500
"""The most messages of one key that follow one commit."""


def with_parking(
    strategies: Sequence[Strategy],
    messages: ParkedMessages | None,
    *,
    hold_key: bool = False,
    hold_dead: int | None = None,
    transactional: bool = True,
) -> tuple[Strategy, ...]:
    """Return the chain with the strategies for parking; unchanged where nothing is parked in the handler's transaction."""
    if messages is None or not transactional:
        return tuple(strategies)
    after = (*strategies, ParkedRows(messages))
    if hold_dead is not None:
        return (DeadKeys(messages, hold_dead), *after)
    return (HeldKeys(messages), *after) if hold_key else after


def parking_of(
    plan: ConsumerPlan,
    engine: Engine | None,
    clock: Clock,
    adapter: Adapter,
    understand: Callable[[Delivery], None],
    queued: Callable[[], Iterable[Delivery]],
    running: Callable[[], Iterable[Delivery]],
) -> ParkedMessages | None:
    """Return the store of this consumer's parked messages; None where none can be parked."""
    kind = InstanceMessages if plan.subscription.broadcast is not None else ParkedMessages
    parks = plan.hold_key or any(strategy.parks for strategy in plan.strategies_on(0))
    if engine is None or not (parks or kind is InstanceMessages):
        return None
    return kind(
        plan.scope, engine, clock, adapter, plan.subscription, understand, queued, running, plan.only_topic
    )


class ParkedRows(Strategy):
    """Stores parked messages, removes finished ones, and releases those whose turn has come.

    Its rows are locked after all locks of strategies: those lock the keys, and wake rows of them.
    """

    traits: ClassVar[Traits] = Traits(decides=False)

    def __init__(self, messages: ParkedMessages) -> None:
        self._messages = messages

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Lock the rows of parked deliveries; a delivery without a row belongs to another process."""
        mine = [ticket.id for item in items if (ticket := self._ticket(item)) is not None]
        run.notes[self] = parking.lock(run.connection, mine)

    def decide(self, run: Run, item: Item) -> Verdict:
        """Do not run what another process has finished."""
        ticket = self._ticket(item)
        return PROCEED if ticket is None or ticket.id in run.notes[self] else VOID

    def save(self, run: Run) -> None:
        """Write the outcome of every item that is or was parked."""
        self._remove_done(run)
        self._leave(run)
        self._add(run)
        self._follow(run)

    def _remove_done(self, run: Run) -> None:
        done = [
            ticket.id
            for item in run.items
            if (ticket := self._ticket(item)) is not None and item.verdict is not None and item.verdict.final
        ]
        parking.remove(run.connection, done)

    def _leave(self, run: Run) -> None:
        """Let messages that are still early wait further."""
        now, as_before = self._messages.clock.now(), dict[datetime | None, list[int]]()
        behind: list[int] = []
        for item, place in self._parked(run):
            ticket = self._ticket(item)
            if ticket is None or ticket.id not in run.notes[self]:
                continue
            if place.held:
                behind.append(ticket.id)
                continue
            due_at = now + place.again if place.again is not None else None
            if ticket.held:
                reason = item.verdict.reason if item.verdict is not None else ""
                parking.place(run.connection, ticket.id, place.number, due_at, now, reason)
            else:
                as_before.setdefault(due_at, []).append(ticket.id)
        parking.wait_behind(run.connection, behind)
        for due_at, ids in as_before.items():
            parking.postpone(run.connection, ids, due_at)

    def _add(self, run: Run) -> None:
        new = [(item, place) for item, place in self._parked(run) if self._ticket(item) is None]
        if not new:
            return
        now, rows, unparkable = self._messages.clock.now(), list[Parked](), dict[Item, Verdict]()
        waiting = Waiting(run.connection, run.consumer, {item.key for item, _ in new})
        for item, place in new:
            message = item.delivery.message
            if waiting.has(item.envelope, message):
                continue
            if place.limit is not None and (count := waiting.count(item.key)) >= place.limit:
                pause = pause_before_turn(message.headers, now)
                unparkable[item] = wait(pause, f"{count} messages of key {item.key!r} are parked already")
                continue
            if (wrong := unstorable(message)) is not None:
                unparkable[item] = reject(f"it cannot be parked: {wrong}", code=UNSTORABLE)
                continue
            waiting.add(item.envelope, message)
            due_at = now + place.again if place.again is not None else None
            reason = storable(item.verdict.reason) if item.verdict is not None else ""
            rows.append(
                Parked(
                    0,
                    item.key,
                    item.envelope.identity,
                    place.number,
                    place.held,
                    message,
                    reason,
                    now,
                    due_at,
                )
            )
        if unparkable:
            raise Culprits(unparkable)
        parking.add(run.connection, run.consumer, rows)

    def _follow(self, run: Run) -> None:
        ids: list[int] = []
        if run.wake:
            ids = parking.turns(run.connection, run.consumer, run.wake, _AT_ONCE)
        released = {
            item.key
            for item in run.items
            if (ticket := self._ticket(item)) is not None and ticket.held and _has_left(item)
        }
        if released:
            held = parking.held(run.connection, run.consumer, released, HELD_AT_ONCE, until_dead=True)
            ids += [id_ for key in sorted(held) for id_ in held[key]]
        if ids:
            coming = self._coming(run)
            run.follow += self._messages.take(run.connection, [id_ for id_ in ids if id_ not in coming])

    def _coming(self, run: Run) -> set[int]:
        """Return the rows that this process will decide about in any case, after this commit."""
        unstarted = {
            ticket.id
            for item in run.items
            if (ticket := self._ticket(item)) is not None
            and (item.verdict is None or item.verdict.outcome is Outcome.RETURNED)
        }
        return unstarted | self._messages.queued()

    def _parked(self, run: Run) -> list[tuple[Item, Place]]:
        return [
            (item, item.verdict.place or Place())
            for item in run.items
            if item.verdict is not None and item.verdict.outcome is Outcome.PARKED
        ]

    def _ticket(self, item: Item) -> Ticket | None:
        return item.delivery.token if item.delivery.source is self._messages else None


def _has_left(item: Item) -> bool:
    """Return whether no message is held behind this item any more: it is done, or waits for its own turn."""
    verdict = item.verdict
    if verdict is None:
        return False
    return verdict.final or (
        verdict.outcome is Outcome.PARKED and not (verdict.place is not None and verdict.place.held)
    )


class HeldKeys(Strategy):
    """`on_retry: hold_key`: while a message is being retried, later ones of its key wait behind it in the ledger."""

    traits: ClassVar[Traits] = Traits(decides=False, promises_order=True)
    parks = True

    def __init__(self, messages: ParkedMessages) -> None:
        self._messages = messages

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Find the keys with waiting messages; lock those, and look again."""
        counts = Counter(item.key for item in items)
        # As many as may be released, and one that shows that more are waiting.
        most = max(counts.values(), default=0) + 1
        waiting = parking.held(run.connection, run.consumer, counts.keys(), most)
        if waiting:
            self._messages.lock(run.connection, sorted(waiting))
            waiting = parking.held(run.connection, run.consumer, waiting.keys(), most)
        run.notes[self] = {key: deque(ids) for key, ids in waiting.items()}

    def decide(self, run: Run, item: Item) -> Verdict:
        """Let the first message of a key run, and all of other keys."""
        waiting: deque[int] | None = run.notes[self].get(item.key)
        delivery = item.delivery
        if delivery.source is not self._messages:
            return _behind(item) if waiting else PROCEED
        ticket: Ticket = delivery.token
        if not ticket.held or not waiting or waiting[0] == ticket.id:
            return PROCEED
        return _behind(item)

    def record(self, run: Run, item: Item) -> None:
        """Let the next message run."""
        waiting: deque[int] | None = run.notes[self].get(item.key)
        ticket = item.delivery.token if item.delivery.source is self._messages else None
        if waiting and ticket is not None and waiting[0] == ticket.id:
            waiting.popleft()


def _behind(item: Item) -> Verdict:
    # Without a limit: messages kept by the broker instead would lose their place, and be too late.
    place = Place(held=True, limit=None)
    return parked(f"an earlier message of key {item.key!r} failed and is tried again first", place)


@dataclass(slots=True)
class _Note:
    """What one run knows.

    Attributes:
        dead: the first dead letter of each key that has one.
        waiting: how many messages of these keys wait.
        died: keys of messages of this unit that are about to be dead letters, with their places in the unit.
        place: of each delivery in the unit; only where `died` is in use.
        seen: how many items of the run have been looked at.
    """

    dead: dict[str, int] = field(default_factory=dict)
    waiting: Counter[str] = field(default_factory=Counter)
    died: dict[str, int] = field(default_factory=dict)
    place: dict[Delivery, int] = field(default_factory=dict)
    seen: int = 0


def ends_dead(verdict: Verdict) -> bool:
    """Return whether this verdict makes a dead letter, whatever the retry policy says."""
    return verdict.outcome in _DEAD


class DeadKeys(HeldKeys):
    """`on_dead: hold_key`: as `HeldKeys`, and later messages of a key wait for its dead letters, too.

    The decision is made in the transaction that would apply the message, on rows that every process sees.

    Args:
        messages: the consumer's parked messages.
        most: how many messages of a key may wait behind a dead letter.
    """

    def __init__(self, messages: ParkedMessages, most: int) -> None:
        super().__init__(messages)
        self._most = most

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Find the keys with waiting messages, and those with dead letters among these."""
        super().load(run, items)
        note = _Note()
        keys = run.notes[self]
        # A message that waits for a number or a state is no held one; the dead letter before it is.
        if keys:
            note.dead = held_letters.first_of(run.connection, run.consumer, keys)
        if note.dead:
            note.waiting = Counter(held_letters.waiting(run.connection, run.consumer, note.dead))
        for delivery, verdict in decided(run.unit).items():
            if ends_dead(verdict):
                self._died(run, note, delivery)
        run.notes[self, _Note] = note

    def decide(self, run: Run, item: Item) -> Verdict:
        """Let nothing run behind a dead letter of its key."""
        note: _Note = run.notes[self, _Note]
        while (earlier := run.items[note.seen]) is not item:
            note.seen += 1
            if earlier.verdict is not None and ends_dead(earlier.verdict):
                self._died(run, note, earlier.delivery)
        died = note.died.get(item.key)
        if died is not None and died < note.place[item.delivery]:
            return _returned()
        if item.key not in note.dead:
            return super().decide(run, item)
        return self._behind_dead(run, item, note)

    def _behind_dead(self, run: Run, item: Item, note: _Note) -> Verdict:
        letter = held_letters.id_of(note.dead[item.key])
        why = f"dead letter {letter} of key {item.key!r} has to be replayed or purged first"
        if item.delivery.source is self._messages:
            ticket: Ticket = item.delivery.token
            if not ticket.held:
                return parked(why, Place(again=_LOOK_AGAIN, limit=None))
            return super().decide(run, item)
        if note.waiting[item.key] >= self._most:
            stored = Waiting(run.connection, run.consumer, [item.key])
            if not stored.has(item.envelope, item.delivery.message):
                return reject(f"{self._most} messages wait already: {why}, then this one", code=FULL)
        note.waiting[item.key] += 1
        return parked(why, Place(held=True, limit=None))

    def _died(self, run: Run, note: _Note, delivery: Delivery) -> None:
        if not note.place:
            note.place = {each: place for place, each in enumerate(run.unit.deliveries)}
        place = note.place[delivery]
        note.died[delivery.key] = min(place, note.died.get(delivery.key, place))


def decided(unit: Unit) -> dict[Delivery, Verdict]:
    """Return what has been decided in this unit so far, by strategies before it and by runs before this one."""
    return {**unit.verdicts, **unit.decided}


def _returned() -> Verdict:
    # Not the one object of that name: it says that the unit's time is up, and returns other keys, too.
    return Verdict(Outcome.RETURNED)
