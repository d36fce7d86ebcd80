"""State that the workers of one consumer share: waiting messages, pauses and progress."""

import math
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta

from oncemq.common.clock import Clock
from oncemq.common.durations import format_duration
from oncemq.common.sharding import Layout
from oncemq.contracts.adapter import Adapter
from oncemq.contracts.unit import Unit
from oncemq.contracts.verdict import Outcome, Verdict, defer, reject
from oncemq.engine.base.error_verdicts import CRASHED, HARD_LIMIT, fault_of, forget_error
from oncemq.engine.consumer.batch_fill import BatchFill
from oncemq.engine.consumer.claim_scheduler import ClaimScheduler
from oncemq.engine.consumer.contention import Contention
from oncemq.engine.consumer.pause_gate import PauseGate
from oncemq.engine.consumer.receiver import Intake
from oncemq.engine.consumer.scheduler import Scheduler
from oncemq.engine.consumer.shard_pauses import ShardPauses
from oncemq.engine.consumer.value_limit import ValueLimit
from oncemq.engine.plan import ConsumerPlan
from oncemq.errors import ClaimStoreUnavailable, InfrastructureError, RedisUnavailable, StrategyBug
from oncemq.ledger.coordination.pauses import OPERATOR, Pause
from oncemq.ledger.records.suspects import names_of
from oncemq.message.claims.reference import refers
from oncemq.message.envelope import Delivery
from oncemq.message.signed_history import place_of
from oncemq.observe.observers import Observers
from oncemq.observe.state import ConsumerState, PauseReason
from oncemq.retry.classify import Fault

_AT_ONCE = timedelta(0)
_QUIET_TRIES = 3
"""How often the steps after a handler may fail in a direct unit before the consumer pauses."""

_FORGERIES_TOLD_EVERY = 60.0
"""Seconds."""


class Consumer:
    """State that a consumer's workers share.

    Args:
        plan: the consumer's plan.
        adapter: its broker.
        clock: the source of time.
        observers: receive all events.
        scheduler: the waiting messages.
        gate: whether units may run.
        point: called with each kill point that a delivery reaches.
        forget: removes an identity from the book of suspects.
        layout: which shard a key belongs to; None without shards.

    Attributes:
        shards: unavailable shards; None without shards.
        pauses: who paused it in all processes; the gate is held while there are any.
        read: fills in a delivery's envelope, key and payload.
        learn_of_deaths: updates `intake.suspects`, including the latest crashes, before messages of these identities run.
        charge: records that a thread failed while it held these deliveries, which ends the process.
    """

    def __init__(
        self,
        plan: ConsumerPlan,
        adapter: Adapter,
        clock: Clock,
        observers: Observers,
        scheduler: Scheduler,
        gate: PauseGate,
        point: Callable[[str], None],
        forget: Callable[[str], None],
        layout: Layout | None = None,
    ) -> None:
        self.plan = plan
        self.adapter = adapter
        self.clock = clock
        self.observers = observers
        self.scheduler = scheduler
        self.gate = gate
        # A success on one shard says nothing about errors on another.
        self.lanes = [Contention(clock.monotonic) for _ in range(1 if layout is None else layout.shards)]
        self.intake = Intake(
            plan.reader,
            plan.history_keys,
            place_of(plan.subscription.group, plan.subscription.topic),
            self._forged,
        )
        if plan.concurrency is not None:
            scheduler.values = self.intake.values = ValueLimit(plan.concurrency)
        if plan.batch is not None:
            fill = scheduler.fill = BatchFill(plan.batch, plan.subscription.in_flight)
            self.intake.groups = fill if fill.groups else None
        self.intake.refused_in_order = plan.hold_dead is not None
        self.read = self.intake.understand
        if isinstance(scheduler, ClaimScheduler):
            scheduler.consumer = self
        self.point = point
        # Each returns what its worker has taken and not begun.
        self.holders: list[Callable[[], list[Delivery]]] = []
        self.learn_of_deaths: Callable[[Collection[str]], None] = lambda _: None
        self.charge: Callable[[Sequence[Delivery]], None] = lambda _deliveries: None
        self._forget = forget
        self.shards = (
            None if layout is None else ShardPauses(layout, clock, self._shard_paused, self._shard_resumed)
        )
        self.pauses: tuple[Pause, ...] = ()
        self._pause_reason: PauseReason | None = None
        self._trouble = self._store_trouble = ""
        self._between_tries: dict[Delivery, Verdict] = {}
        self._running: set[Delivery] = set()
        self._settling: set[Delivery] = set()
        self._mutex = threading.Lock()
        self._last_progress = clock.monotonic()
        self._last_rest = self._last_progress
        self._forgeries = 0
        self._forgery_told_at = -math.inf

    def receive(self, deliveries: Sequence[Delivery]) -> None:
        """Receive deliveries from the adapter's thread."""
        understand, point, claims = self.read, self.point, self.plan.claims
        for delivery in deliveries:
            # What has to be fetched is read by the scheduler: this is the adapter's thread, whose broker waits.
            if claims is None or delivery.refusal is not None or not refers(delivery.message):
                understand(delivery)
            point("received")
        self.scheduler.put(deliveries)

    def _forged(self, delivery: Delivery) -> None:
        """Log messages with forged claims, once a minute: anyone may send many."""
        self._forgeries += 1
        now = self.clock.monotonic()
        if now - self._forgery_told_at >= _FORGERIES_TOLD_EVERY:
            self._forgery_told_at = now
            self.observers.warned(
                f"consumer {self.plan.name!r}: message {delivery.message.message_id!r} claimed tries without a signature of "
                f"history_key, and counts as new; {self._forgeries} so far"
            )

    def store_away(self, pause: timedelta, error: ClaimStoreUnavailable) -> None:
        """Report that the store of large bodies does not answer."""
        self._store_trouble = str(error)
        self.observers.consumer_paused(self.plan.name, PauseReason.STORE, retry_in=pause, error=error)

    def store_back(self, lasted: timedelta) -> None:
        """Report that it answers again."""
        self._store_trouble = ""
        self.observers.consumer_resumed(self.plan.name, after=lasted)

    def lost(self, generation: int, *, alone: bool) -> None:
        """Drop waiting deliveries of a lost generation; also of earlier ones, unless `alone`."""
        self.scheduler.void(generation, alone=alone)

    def release(self, generation: int) -> Sequence[Delivery]:
        """Run nothing more of a generation that another process takes over; returns what waited."""
        return self.scheduler.release(generation)

    def unit(self, deliveries: Sequence[Delivery], deadline: float) -> Unit:
        """Return a unit of deliveries whose keys a worker owns."""
        return Unit(
            self.plan.scope,
            deliveries,
            deadline,
            decode=self.plan.reader.decode,
            resume=self.scheduler.wake,
        )

    def doubtful(self, taken: Sequence[Delivery]) -> bool:
        """Return whether another process held one of these before, as far as known."""
        return any(delivery.suspect or delivery.message.redelivered for delivery in taken)

    def doubt(self, taken: Sequence[Delivery]) -> None:
        """Check again for recent crashes before a delivery is run.

        A process that dies returns its messages before its successor has read its flight recorder. So the worker that
        receives one of them reads that first: otherwise the message would get one attempt too many, and more per process.
        """
        identities = {each.envelope.identity for each in taken if each.envelope is not None}
        try:
            self.learn_of_deaths(identities)
        except Exception as error:
            self.observers.failed("looking for crash suspects", error)
        for delivery in taken:
            self.intake.suspect(delivery)

    def judge_unrun(self, delivery: Delivery) -> Verdict | None:
        """Return the verdict on a delivery that must not run; None for all others."""
        if delivery.refusal is not None:
            refusal = delivery.refusal
            return reject(str(refusal), error=refusal, code=refusal.reason)
        if delivery.crashes:
            most = self.plan.retry_of(delivery).attempts_of(delivery.message.headers)
            if delivery.message.attempt - 1 + delivery.crashes >= most:
                return self._verdict_on_deaths(delivery)
        return None

    def _verdict_on_deaths(self, delivery: Delivery) -> Verdict:
        deaths, overruns = delivery.crashes, self.intake.overruns(delivery)
        limit = self.plan.hard_limit
        shown = "the hard limit" if limit is None else f"the hard limit of {format_duration(limit)}"
        if overruns >= deaths:
            return reject(f"the handler ran longer than {shown} {deaths} times", code=HARD_LIMIT)
        part = f", {overruns} of them because its handler ran longer than {shown}" if overruns else ""
        return reject(f"a process died {deaths} times while this message ran{part}", code=CRASHED)

    def immediately(self, delivery: Delivery, verdict: Verdict) -> Verdict:
        """Return the verdict, or that the message is tried again at once if its error allows that (`retry: immediate`).

        A message whose handler has not run, since a strategy asks for a retry, has not failed.
        """
        if delivery.immediate and (earlier := self._between_tries.pop(delivery, None)) is not None:
            forget_error(earlier)
        if verdict.outcome is not Outcome.RETRY or verdict.delay is not None or verdict.untried:
            return verdict
        if (
            delivery.suspect
            or delivery.immediate >= self.plan.retry_of(delivery).for_error(verdict.error).immediate
        ):
            return verdict
        delivery.immediate += 1
        self._between_tries[delivery] = verdict
        return defer(_AT_ONCE, verdict.reason)

    def failed_among(self, deliveries: Sequence[Delivery]) -> list[tuple[Delivery, Verdict]]:
        """Return those that have failed and wait for an immediate try, with the failure: the broker must not take them for new."""
        return [(each, self._between_tries[each]) for each in deliveries if each in self._between_tries]

    def ended(self, delivery: Delivery) -> None:
        """Forget the crashes of a message that is finished."""
        envelope = delivery.envelope
        known = self.intake.suspects
        if envelope is not None and known and not names_of(envelope.identity).isdisjoint(known):
            self.intake.forget(envelope.identity)
            try:
                self._forget(envelope.identity)
            except Exception as error:
                self.observers.failed("forgetting a crash suspect", error)

    def pause(self, trouble: InfrastructureError | StrategyBug) -> None:
        """Pause for a while, and report it."""
        pause = self.gate.close()
        self._pause_reason = _reason(trouble)
        self._trouble = str(trouble)
        self.observers.consumer_paused(
            self.plan.name, self._pause_reason, retry_in=timedelta(seconds=pause), error=trouble
        )

    def must_wait(self, delivery: Delivery) -> Verdict | None:
        """Return the deferral of a message whose shard is unavailable; None when it may run."""
        return None if self.shards is None else self.shards.wait_for(delivery)

    def may_leave(self, delivery: Delivery) -> bool:
        """Return whether the broker may keep a message while its shard is unavailable: not if it would lose its place."""
        return delivery.source is None and not self.plan.hold_key

    def _shard_paused(self, trouble: InfrastructureError, pause: float) -> None:
        self.observers.consumer_paused(
            self.plan.name, _reason(trouble), retry_in=timedelta(seconds=pause), error=trouble
        )

    def _shard_resumed(self, lasted: float) -> None:
        self.observers.consumer_resumed(self.plan.name, after=timedelta(seconds=lasted))

    def unfinished(
        self, shard: int, tries: int, pause: float, trouble: InfrastructureError | StrategyBug
    ) -> None:
        """Report that a step after the handler failed; if it persists, pause: the next messages would fail too."""
        lasts = tries >= _QUIET_TRIES
        if lasts and self.shards is not None and isinstance(trouble, InfrastructureError):
            self.shards.pause(shard, trouble)
        elif lasts or isinstance(trouble, StrategyBug):
            self.pause(trouble)
        else:
            self.observers.infrastructure_failed(
                self.plan.name, tries=tries, next_in=timedelta(seconds=pause), error=trouble
            )

    def progressed(self) -> None:
        """Record that a unit succeeded."""
        self._last_progress = self.clock.monotonic()
        lasted = self.gate.succeeded()
        if lasted is not None:
            self._pause_reason = None
            self._trouble = ""
            self.observers.consumer_resumed(self.plan.name, after=timedelta(seconds=lasted))

    def started(self, deliveries: Iterable[Delivery]) -> None:
        """Record deliveries that a worker holds."""
        with self._mutex:
            self._running.update(deliveries)

    def finished(self, deliveries: Iterable[Delivery]) -> None:
        """Record deliveries that a worker has released."""
        with self._mutex:
            self._running.difference_update(deliveries)

    def settling(self, deliveries: Iterable[Delivery]) -> None:
        """Record deliveries that are about to be settled."""
        with self._mutex:
            self._settling.update(deliveries)

    def settled(self, deliveries: Iterable[Delivery]) -> None:
        """Record that the settlement of these has ended."""
        with self._mutex:
            self._settling.difference_update(deliveries)

    def not_begun(self) -> list[Delivery]:
        """Return deliveries that this process will run: those in the queue, and those that workers have taken and not begun."""
        # In this order: deliveries taken from the queue meanwhile are in both.
        return [*self.scheduler.snapshot(), *(delivery for held in self.holders for delivery in held())]

    def running(self) -> list[Delivery]:
        """Return deliveries held by workers, and those whose failure is not settled yet."""
        with self._mutex:
            return list(self._running | self._settling)

    def idle_for(self) -> float:
        """Return the seconds since the last message arrived or ran."""
        if self._running or self._settling:
            return 0.0
        return min(self.scheduler.idle_for(), self.clock.monotonic() - self._last_progress)

    def rest(self) -> int:
        """Record when there is nothing to do, so that idleness is not lack of progress; returns the amount of work."""
        waiting = self.scheduler.waiting() + len(self._running | self._settling)
        if not waiting:
            self._last_rest = self.clock.monotonic()
        return waiting

    def state(self, *, subscribed: bool, detail: str) -> ConsumerState:
        """Return the state that health and metrics show."""
        waiting = self.rest()
        paused, trouble = self._pause_reason, self._trouble
        if paused is None and self.shards is not None and (away := self.shards.trouble()) is not None:
            paused, trouble = _reason(away), str(away)
        if paused is None and self._store_trouble:
            paused, trouble = PauseReason.STORE, self._store_trouble
        ordered = self.pauses
        if ordered:
            paused = PauseReason.ASKED if ordered[0].kind == OPERATOR else PauseReason.BREAKER
            trouble = f"{ordered[0]}" + (f"; {trouble}" if trouble else "")
        return ConsumerState(
            consumer=self.plan.name,
            subscribed=subscribed,
            paused=paused,
            waiting=waiting,
            in_flight=waiting,
            last_progress=max(self._last_progress, self._last_rest),
            detail=self.plan.redact(detail or trouble),
            exclusive=any(lane.exclusive for lane in self.lanes),
            figures={
                name: value
                for strategy in self.plan.strategies_on(0)
                for name, value in strategy.figures().items()
            },
            pauses=ordered,
        )


def _reason(trouble: InfrastructureError | StrategyBug) -> PauseReason:
    if isinstance(trouble, StrategyBug):
        return PauseReason.STRATEGY_BUG
    if isinstance(trouble.__cause__, RedisUnavailable):
        return PauseReason.REDIS
    if isinstance(trouble.__cause__ or trouble, ClaimStoreUnavailable):
        return PauseReason.STORE
    return PauseReason.SETUP if fault_of(trouble) is Fault.SETUP else PauseReason.DATABASE
