"""Worker thread of a consumer: takes ready messages, runs them as units, settles, and releases their keys."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain

from oncemq.contracts.checks import Effects
from oncemq.contracts.unit import Unit
from oncemq.contracts.verdict import RETURNED, Outcome, Verdict
from oncemq.engine.base.items import may_run
from oncemq.engine.base.strategy_chain import Chain
from oncemq.engine.consumer.batch_sizing import BatchSize, FailureRate, SavepointPolicy
from oncemq.engine.consumer.consumer import Consumer
from oncemq.engine.consumer.pause_gate import PauseGate
from oncemq.engine.parking.parking_strategies import ends_dead
from oncemq.engine.settlement.background_settler import Settles
from oncemq.engine.workers.direct_unit import Finisher
from oncemq.engine.workers.failure_isolation import UnitResult
from oncemq.engine.workers.outcome_writer import OutcomeWriter
from oncemq.engine.workers.placement import Placement
from oncemq.errors import InfrastructureError, StrategyBug
from oncemq.handler.binding import BoundHandler
from oncemq.message.envelope import Delivery
from oncemq.observe.events import RescueStep

TAKE_TIMEOUT = 0.2
_AWAY = timedelta(seconds=10)
"""How long the broker keeps messages whose shard is unavailable for long; equal for all, so that their order is kept."""
_IN_COMPANY = nullcontext()
_ROLLED_BACK = (RescueStep.RERUN, RescueStep.CAREFUL, RescueStep.HALVE)

Trouble = InfrastructureError | StrategyBug
Execute = Callable[[Unit], UnitResult]


class TakeResult:
    """Deliveries that a worker holds while it works on one take.

    Attributes:
        back: deliveries that return to the head of their key's queue, in order.
        sleep: seconds for which a key must not run.
        held: keys of which nothing more may run in this take.
        put_off: deferred for so long that they are returned to the broker, with the delays.
        follow: parked messages whose turn has come; next in order of their keys.
    """

    __slots__ = ("back", "follow", "held", "put_off", "sleep")

    def __init__(self) -> None:
        self.back: list[Delivery] = []
        self.sleep: dict[str, float] = {}
        self.held: set[str] = set()
        self.put_off: list[tuple[Delivery, timedelta]] = []
        self.follow: list[Delivery] = []

    def keep(self, delivery: Delivery, verdict: Verdict, too_long: Callable[[Delivery], bool]) -> None:
        """Return deliveries that were not started or are deferred; later ones of a held key must not overtake them."""
        if verdict.holds_key:
            self.held.add(delivery.key)
        if verdict.outcome is Outcome.RETURNED:
            self.back.append(delivery)
        elif verdict.outcome is Outcome.DEFER:
            self._defer(delivery, verdict.delay, too_long)

    def _defer(
        self, delivery: Delivery, delay: timedelta | None, too_long: Callable[[Delivery], bool]
    ) -> None:
        if delay is not None and too_long(delivery):
            self.put_off.append((delivery, delay))
            return
        self.back.append(delivery)
        if delay is not None:
            self.sleep[delivery.key] = delay.total_seconds()


class Worker:
    """Runs units until the consumer's gate is stopped.

    Args:
        consumer: the state shared with other workers.
        execute: runs one unit.
        settler: settles with the broker.
        alone: held while a crash suspect runs, so that no two run at once in this process.
        unit_time: the intended duration of a unit in seconds.
        batch_limit: the most messages in a unit.
        placement: where messages run; a unit is in one place.
    """

    def __init__(
        self,
        consumer: Consumer,
        execute: Execute,
        settler: Settles,
        alone: AbstractContextManager[object],
        unit_time: float,
        batch_limit: int,
        placement: Placement,
    ) -> None:
        self._consumer = consumer
        self._execute = execute
        self._settler = settler
        self._alone = alone
        self._unit_time = unit_time
        waits = consumer.plan.batch is not None and consumer.plan.batch.within > 0
        self._batch = BatchSize(unit_time, batch_limit, fixed=waits)
        self._failures = FailureRate()
        self._undoing = SavepointPolicy()
        self._placement = placement
        retries = [consumer.plan.retry, *(route.retry for route in consumer.plan.routes)]
        self._tries_at_once = any(retry.tries_at_once for retry in retries)
        self._run = self._segment if consumer.shards is None else self._on_shard
        self._hands = TakeResult()
        self._later: Sequence[list[Delivery]] = ()
        consumer.holders.append(self.holds)

    def holds(self) -> list[Delivery]:
        """Return messages of a take that wait for their unit, or go to the queue after it; from any thread."""
        later, hands = self._later, self._hands
        return [*chain.from_iterable(later), *hands.follow, *hands.back]

    def loop(self) -> None:
        """Work until stopped."""
        consumer = self._consumer
        while not consumer.gate.stopped:
            taken = self.take()
            if not taken:
                continue
            taken = self._together(taken)
            consumer.started(taken)
            try:
                if consumer.doubtful(taken):
                    consumer.doubt(taken)
                self.work(taken)
            except BaseException:
                # This ends the process: the deliveries it held must not end every next process, too.
                consumer.charge(taken)
                raise
            finally:
                consumer.finished(taken)

    def take(self) -> list[Delivery]:
        """Return the next messages once units may run; none if there are none for a moment."""
        consumer = self._consumer
        consumer.gate.wait()
        most = self._most() * self._placement.places
        return consumer.scheduler.take(most, TAKE_TIMEOUT, consumer.plan.workers)

    @staticmethod
    def pause(gate: PauseGate, seconds: float) -> None:
        """Wait before another try, at most until stopped."""
        gate.sleep(seconds)

    def step(self, most: int) -> bool:
        """Work once, on at most `most` messages that are ready now; returns whether there were any.

        For a process without flight recorders: it has no crash suspects.
        """
        consumer = self._consumer
        taken = consumer.scheduler.take(most, 0.0)
        if taken:
            taken = self._together(taken)
            consumer.started(taken)
            try:
                self.work(taken)
            finally:
                consumer.finished(taken)
        return bool(taken)

    def _together(self, taken: list[Delivery]) -> list[Delivery]:
        """Return how many messages this worker may hold.

        A direct unit repeats the steps after its handlers until their shard answers: keys of others must not wait for that.
        """
        consumer = self._consumer
        if consumer.shards is None or consumer.plan.effects is Effects.DATABASE:
            return taken
        shard_of = consumer.shards.shard_of
        shard = shard_of(taken[0])
        mine = [delivery for delivery in taken if shard_of(delivery) == shard]
        others = [delivery for delivery in taken if shard_of(delivery) != shard]
        if others:
            consumer.scheduler.done(others, others)
        return mine

    def _most(self) -> int:
        return self._failures.cap(self._batch.limit)

    def work(self, taken: list[Delivery]) -> None:
        """Bring every delivery of `taken` to settlement, or back to its queue."""
        hands = self._hands = TakeResult()
        trouble: Trouble | None = None
        units = list(self._placement.units(taken, self._most()))
        try:
            for number, segment in enumerate(units, 1):
                self._later = units[number:]
                ready, behind = may_run(segment, {}, hands.held)
                hands.back += behind
                if trouble is not None:
                    hands.back += ready
                elif ready:
                    trouble = self._run(ready, hands)
        finally:
            self._consumer.scheduler.done(taken, [*hands.follow, *hands.back], hands.sleep)
            self._hands, self._later = TakeResult(), ()
        if trouble is not None:
            self._consumer.pause(trouble)
        else:
            self._consumer.progressed()

    def _on_shard(self, ready: list[Delivery], hands: TakeResult) -> Trouble | None:
        """Run a segment; messages of an unavailable shard wait, without affecting the others."""
        shards, clock = self._consumer.shards, self._consumer.clock.monotonic
        if shards is None or self._consumer.judge_unrun(ready[0]) is not None:
            return self._segment(ready, hands)
        if shards.wait_for(ready[0]) is not None:
            self._wait_for_shard(ready, hands)
            return None
        started = clock()
        trouble = self._segment(ready, hands)
        if trouble is None:
            shards.succeeded(ready[0])
        if not isinstance(trouble, InfrastructureError):
            return trouble
        direct = self._consumer.plan.effects is not Effects.DATABASE
        shards.failed(ready[0], trouble, 0.0 if direct else clock() - started)
        mine, back = set(ready), hands.back
        hands.back = [delivery for delivery in back if delivery not in mine]
        self._wait_for_shard([delivery for delivery in back if delivery in mine], hands)
        return None

    def _wait_for_shard(self, waiting: list[Delivery], hands: TakeResult) -> None:
        """Keep messages until their shard is checked again, or return them to the broker if that takes long."""
        consumer, gone = self._consumer, set[str]()
        for delivery in waiting:
            if consumer.may_leave(delivery) and (
                delivery.key in gone or self._settler.held_too_long(delivery)
            ):
                gone.add(delivery.key)
                hands.held.add(delivery.key)
                hands.put_off.append((delivery, _AWAY))
            else:
                hands.keep(delivery, consumer.must_wait(delivery) or RETURNED, _never)
        self._settler.put_off(hands.put_off)
        hands.put_off.clear()

    def _segment(self, ready: list[Delivery], hands: TakeResult) -> Trouble | None:
        """Run deliveries as one unit, settle them, and learn from it."""
        if self._consumer.judge_unrun(ready[0]) is not None:
            # A suspect is alone, and refused messages are together.
            pairs = [(delivery, self._consumer.judge_unrun(delivery) or RETURNED) for delivery in ready]
            self._settle(pairs, hands)
            return None
        with self._alone if ready[0].suspect else _IN_COMPANY:
            clock = self._consumer.clock.monotonic
            started = clock()
            unit = self._consumer.unit(ready, started + self._unit_time)
            unit.guarded, unit.savepoint_every = (
                self._undoing.guarded,
                self._undoing.savepoint_every(len(ready)),
            )
            result = self._execute(unit)
            seconds = clock() - started - unit.waited
            pairs = [(delivery, result.verdicts.get(delivery, RETURNED)) for delivery in ready]
            if self._tries_at_once:
                pairs = [(each, self._consumer.immediately(each, verdict)) for each, verdict in pairs]
            self._consumer.observers.judged(self._consumer.plan.name, pairs)
            self._settle(pairs, hands)
            hands.follow += result.follow
            self._learn(unit, pairs, result, seconds)
            return result.trouble

    def _settle(self, pairs: list[tuple[Delivery, Verdict]], hands: TakeResult) -> None:
        dead_too = self._consumer.plan.hold_dead is not None
        for delivery, verdict in pairs:
            if not verdict.acknowledged:
                hands.keep(delivery, verdict, self._settler.held_too_long)
                if dead_too and ends_dead(verdict):
                    # Its dead letter is not written yet, and may never be if the process is ending.
                    hands.held.add(delivery.key)
        self._settler.settle(pairs)
        if hands.put_off:
            self._settler.put_off(hands.put_off)
            hands.put_off.clear()
        first, verdict = pairs[0]
        if first.suspect and verdict.acknowledged:
            self._consumer.ended(first)

    def _learn(
        self, unit: Unit, pairs: list[tuple[Delivery, Verdict]], result: UnitResult, seconds: float
    ) -> None:
        counts: Counter[Outcome] = Counter()
        # Nearly all verdicts are the same object.
        for verdict, count in Counter(verdict for _, verdict in pairs).items():
            counts[verdict.outcome] += count
        size = len(pairs)
        if not pairs[0][0].suspect and result.trouble is None:
            self._batch.learn(taken=size, done=size - cut_short(pairs), seconds=seconds)
            failures = sum(result.steps[step] for step in _ROLLED_BACK)
            self._failures.learn(items=size, failures=failures)
            undone = failures + result.steps[RescueStep.SAVEPOINT]
            others = max(0, undone - (0 if unit.guarded else unit.late))
            self._undoing.learn(items=size, spoke=unit.spoke, late=unit.late, others=others)
        self._consumer.observers.unit_done(
            self._consumer.plan.name, counts, size=size, seconds=seconds, rescue=result.steps or None
        )


def _never(_delivery: Delivery) -> bool:
    return False


def cut_short(pairs: Sequence[tuple[Delivery, Verdict]]) -> int:
    """Return how many were not started for lack of time; those waiting behind a failure of their key do not count."""
    held: set[str] = set()
    cut = 0
    for delivery, verdict in pairs:
        if verdict.outcome is not Outcome.RETURNED:
            if verdict.holds_key:
                held.add(delivery.key)
        elif delivery.key not in held:
            cut += 1
    return cut


@dataclass(frozen=True, slots=True)
class ShardRuntime:
    """Hooks and handler for direct messages of one shard.

    Args:
        chain: the strategies' hooks.
        handler: the user's function.
        finisher: executes the steps after the handler.
        writer: saves how handlers ended, together with others; None = each by itself.
    """

    chain: Chain
    handler: BoundHandler
    finisher: Finisher
    writer: OutcomeWriter | None = None


def by_unit(executes: Sequence[Execute], placement: Placement) -> Execute:
    """Return the function that runs a unit in its place."""
    if placement.places == 1:
        return executes[0]
    select = placement.select(executes)

    def execute(unit: Unit) -> UnitResult:
        return select(unit.deliveries[0])(unit)

    return execute
