"""Runs recorded messages through the real engine and strategies, in this thread, on a scratch database and a broker in memory."""

import gc
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Engine, event, make_url

from oncemq.config.build.databases import whole_urls
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import Outcome, Verdict
from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.errors import Reject, Retry
from oncemq.message.envelope import Delivery
from oncemq.observe.events import Observer
from oncemq.operate.recording import mark_of
from oncemq.rehearsal import scratch_rows
from oncemq.rehearsal.meaning import INDEX, RecordedReader, message_of, require_bodies
from oncemq.rehearsal.protection import Protection, protection_of
from oncemq.rehearsal.recording_file import Recording
from oncemq.rehearsal.scratch_app import NewApp
from oncemq.rehearsal.stories import ENDS, End, Story, Try
from oncemq.testing.fake_clock import FakeClock
from oncemq.testing.kit.databases import Databases
from oncemq.testing.kit.memory_broker import MemoryAdapter, MemoryBroker
from oncemq.testing.kit.stepped_process import SteppedProcess

_TOGETHER: Final = 500
"""Messages that are delivered together, at most."""
_TICK: Final = 1.0
"""Seconds of the recording whose messages are delivered together."""
_LAST: Final = timedelta(hours=1)
"""Time that is let pass after the last message, for what waits."""
_MINUTE: Final = timedelta(minutes=1)


@dataclass(slots=True)
class Verdicts(Observer):
    """How each message ended in the rehearsal.

    Attributes:
        stories: the messages.
        ends: by number.
        reasons: by number, of those that were not applied.
        failures: how often the handler has failed so far, by number.
        waiting: numbers of those that have not ended.
        paused: why the consumer does not go on; empty while it does.
    """

    stories: Sequence[Story]
    ends: list[End | None] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    failures: Counter[int] = field(default_factory=Counter)
    waiting: set[int] = field(default_factory=set)
    paused: str = ""

    def judged(self, consumer: str, verdicts: Sequence[tuple[Delivery, Verdict]]) -> None:
        """Record how messages end."""
        del consumer
        for delivery, verdict in verdicts:
            outcome = verdict.outcome
            number = int(delivery.message.headers[INDEX])
            if outcome is Outcome.PROCEED:
                self.ends[number] = End.APPLIED
                if number in self.waiting:
                    self.waiting.discard(number)
                    self.reasons.pop(number, None)
                continue
            if outcome is Outcome.RETRY and not verdict.untried:
                self.failures[number] += 1
            end = self.ends[number] = ENDS.get(outcome.value, End.WAITING)
            self.reasons[number] = verdict.reason
            if end is End.WAITING:
                self.waiting.add(number)
            else:
                self.waiting.discard(number)

    def dead_lettered(
        self, consumer: str, delivery: Delivery, *, code: str, reason: str = "", **_: Any
    ) -> None:
        """Record a dead letter."""
        del consumer
        number = int(delivery.message.headers[INDEX])
        self.ends[number] = End.DEAD
        self.reasons[number] = reason or code
        self.waiting.discard(number)

    def consumer_paused(
        self, consumer: str, reason: Any, *, error: BaseException | None = None, **_: Any
    ) -> None:
        """Record why the consumer does not go on."""
        del consumer
        self.paused = f"{reason.value}: {error}"

    def call(self, run: Run, item: Item) -> None:
        """Do in the handler's place what it did when the message was recorded."""
        del run
        number = int(item.delivery.message.headers[INDEX])
        tries = self.stories[number].tries
        done = tries[min(self.failures[number], len(tries) - 1)] if tries else Try.DONE
        if done is Try.FAILED:
            raise Retry("the handler failed when it was recorded")
        if done is Try.REJECTED:
            raise Reject(f"rejected by the handler when it was recorded ({self.stories[number].code})")


@dataclass
class Cost:
    """What the rehearsed messages cost.

    Attributes:
        statements: of units, without background work.
        commits: transactions that were committed.
        counting: whether units run now.
    """

    statements: int = 0
    commits: int = 0
    counting: bool = False

    def watch(self, engine: Engine) -> Engine:
        """Count what is done on an engine."""

        def statement(*_: Any) -> None:
            self.statements += self.counting

        def commit(*_: Any) -> None:
            self.commits += self.counting

        event.listen(engine, "before_cursor_execute", statement)
        event.listen(engine, "commit", commit)
        return engine


class _Process(SteppedProcess):
    """One process of the app; background work that brings no message back is done once a minute only."""

    def pass_time(self, by: timedelta, *, waiting: bool) -> None:
        """Let time pass; only if a message waits for it, something may happen meanwhile."""
        if waiting or self._upkeep_is_due():
            self.advance(by)
        else:
            self._clock.advance(by)

    def _run_tasks(self, *, everything: bool) -> None:
        due = everything and self._upkeep_is_due()
        if due:
            self._kept_at = self._clock.monotonic()
        super()._run_tasks(everything=due)

    def _upkeep_is_due(self) -> bool:
        return self._clock.monotonic() - getattr(self, "_kept_at", 0.0) >= _MINUTE.total_seconds()


@dataclass
class Rehearsal:
    """What came of a rehearsal.

    Attributes:
        recording: what was rehearsed.
        stories: its messages.
        verdicts: how they ended.
        cost: of the new configuration.
        protection: what records of the old strategies are worth.
        words: what was assumed, and what was left out.
        unread: messages that could not be read when they were recorded, and cannot be rehearsed.
    """

    recording: Recording
    stories: Sequence[Story]
    verdicts: Verdicts
    cost: Cost
    protection: Protection
    words: list[str]
    unread: int


def rehearse(recording: Recording, stories: Sequence[Story], new: NewApp, database: str | None) -> Rehearsal:
    """Run the messages of a recording through the new configuration.

    Args:
        recording: what was recorded.
        stories: its messages.
        new: the new configuration.
        database: the URL of a server on which a schema or database is created for this, and dropped; None = SQLite.

    Raises:
        ConfigError: the configuration cannot run, or the recording lacks what it reads.
    """
    settled = new.settled
    require_bodies(recording, settled, scratch_rows.expressions_of(settled))
    reader = RecordedReader(settled, stories, recording)
    protection = _protection(recording, new)
    began = stories[0].first.at if stories else 0.0
    clock, cost = FakeClock(datetime.fromtimestamp(began, UTC)), Cost()
    databases = Databases(
        ["sqlite://"] if database is None else [database], scratch_rows.create_tables(settled), clock
    )
    with _quiet():
        try:
            plan = new.build(
                clock, lambda declared: [cost.watch(engine) for engine in databases.engines(declared)]
            ).plan
            verdicts = Verdicts(stories, [None] * len(stories))
            seeds = scratch_rows.seeds_of(settled, stories, reader, protection)
            unread = _run(plan, reader, stories, verdicts, cost, clock, settled, seeds)
        finally:
            databases.close()
    words = [*seeds.words]
    return Rehearsal(recording, stories, verdicts, cost, protection, words, unread)


def _protection(recording: Recording, new: NewApp) -> Protection:
    scopes = [f"{new.declared.app}.{new.settled.ledger_name}"]
    scopes += [f"{new.declared.app}.{other}" for other in new.settled.other_names]
    return protection_of(recording, new.settled, new.strategies, scopes, _mark(new))


def _mark(new: NewApp) -> str:
    declared = new.declared.database
    urls = whole_urls(declared) if declared is not None else []
    return mark_of(make_url(urls[0])) if urls else ""


def _run(
    plan: AppPlan,
    reader: RecordedReader,
    stories: Sequence[Story],
    verdicts: Verdicts,
    cost: Cost,
    clock: FakeClock,
    settled: Any,
    seeds: scratch_rows.Seeds,
) -> int:
    brokers = {name: MemoryBroker(plan.clock) for name in plan.adapters}
    adapters = {name: MemoryAdapter(broker, name) for name, broker in brokers.items()}
    (consumer,) = (_prepared(each, reader, verdicts) for each in plan.consumers)
    plan = replace(plan, adapters=adapters, consumers=(consumer,), state=None, http=None)

    def next_delivery() -> datetime | None:
        found = [broker.next_due() for broker in brokers.values()]
        return min((due for due in found if due is not None), default=None)

    process = _Process(
        plan,
        [adapter.deliver for adapter in adapters.values()],
        next_delivery,
        clock,
        verdicts,
        lambda _: None,
    )
    broker, unread = brokers[consumer.broker], 0
    try:
        process.start()
        scratch_rows.store(plan.engines[0], settled, consumer.scope, seeds, clock.now())
        group = broker.group(consumer.subscription)
        for moment, numbers in _together(stories):
            ahead = moment - clock.now()
            if ahead > timedelta(0):
                process.pass_time(ahead, waiting=bool(verdicts.waiting))
            for number in numbers:
                if not stories[number].readable:
                    unread += 1
                    continue
                broker.send(group, message_of(number, stories[number], consumer.subscription.topic))
            cost.counting = True
            process.settle()
            cost.counting = False
        _wait(process, verdicts)
    finally:
        process.stop()
    return unread


def _wait(process: _Process, verdicts: Verdicts) -> None:
    """Let time pass until nothing waits any more, or the last of it has not changed for long."""
    passed = timedelta(0)
    while passed < _LAST and verdicts.waiting:
        process.advance(_MINUTE)
        passed += _MINUTE


def _together(stories: Sequence[Story]) -> Iterator[tuple[datetime, list[int]]]:
    """Yield moments with the numbers of the messages that are delivered then."""
    numbers: list[int] = []
    began = 0.0
    for number, story in enumerate(stories):
        if numbers and (story.first.at - began > _TICK or len(numbers) >= _TOGETHER):
            yield datetime.fromtimestamp(began, UTC), numbers
            numbers = []
        if not numbers:
            began = story.first.at
        numbers.append(number)
    if numbers:
        yield datetime.fromtimestamp(began, UTC), numbers


def _prepared(consumer: ConsumerPlan, reader: RecordedReader, verdicts: Verdicts) -> ConsumerPlan:
    handler = replace(consumer.handler, name="rehearsal", call=verdicts.call)
    return replace(
        consumer,
        reader=reader,
        handler=handler,
        rate=None,
        breakers=(),
        on_dead=None,
        history_keys=None,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Log nothing, since what happens in a rehearsal has not happened; and do not collect what stays."""
    logger = logging.getLogger("oncemq")
    before = logger.disabled
    logger.disabled = True
    # The recording stays until the end: the collector need not look at it again and again.
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        logger.disabled = before
