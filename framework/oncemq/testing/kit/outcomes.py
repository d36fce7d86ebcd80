"""Outcomes of published messages: which consumer applied, refused or postponed each, and why."""

import inspect
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from threading import Condition
from typing import Any, Final

from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import Outcome as Decision
from oncemq.contracts.verdict import Verdict
from oncemq.handler.binding import BoundHandler
from oncemq.message.envelope import Delivery, OutgoingMessage
from oncemq.observe.events import Observer
from oncemq.observe.state import PauseReason


class Status(StrEnum):
    """What became of a message at one consumer."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    STALE = "stale"
    EXPIRED = "expired"
    PARKED = "parked"
    RETRIED = "retried"
    DEAD_LETTER = "dead letter"
    WAITING = "waiting"


_STATUS: Final[Mapping[Decision, Status]] = {
    Decision.PROCEED: Status.APPLIED,
    Decision.DUPLICATE: Status.DUPLICATE,
    Decision.STALE: Status.STALE,
    Decision.EXPIRED: Status.EXPIRED,
    Decision.PARKED: Status.PARKED,
    Decision.RETRY: Status.RETRIED,
    Decision.REJECT: Status.DEAD_LETTER,
    Decision.CONFLICT: Status.DEAD_LETTER,
    Decision.DEFER: Status.WAITING,
    Decision.WAIT: Status.WAITING,
    Decision.RETURNED: Status.WAITING,
}


@dataclass(frozen=True, slots=True)
class Handling:
    """What became of one delivery of a message at one consumer.

    Args:
        status: the decision.
        attempt: 1 for the first delivery; counts attempts that are charged to the message.
        reason: a few words; empty if it was applied.
        code: a dead letter's machine-readable reason, such as `rejected`, `attempts-exhausted` or `no-key`; else empty.
        error: the exception that the handler raised, or the cause of a refusal; None without one.
        result: the handler's return value; None unless this delivery was applied.
        next_in: the pause before a retry; None for everything else.
    """

    status: Status
    attempt: int = 1
    reason: str = ""
    code: str = ""
    error: BaseException | None = None
    result: Any = None
    next_in: timedelta | None = None


_UNSEEN: Final = Handling(Status.WAITING, reason="not delivered yet")


class Outcome:
    """What became of one published message; changes when the message is delivered again.

    With several consumers of the topic, `applied` and the like are true if they are true for every consumer;
    `of` tells them apart.

    Attributes:
        topic: where it was published.
        message: as it was published.
    """

    def __init__(self, topic: str, message: OutgoingMessage, consumers: Sequence[str]) -> None:
        self.topic = topic
        self.message = message
        self._handlings: dict[str, list[tuple[Delivery, Handling]]] = {name: [] for name in consumers}

    def __repr__(self) -> str:
        states = ", ".join(f"{name}: {_described(self.of(name))}" for name in self._handlings)
        return f"<Outcome of {self.topic} {states or 'without a consumer'}>"

    @property
    def message_id(self) -> str:
        """The message's id."""
        return self.message.message_id or ""

    @property
    def consumers(self) -> tuple[str, ...]:
        """The names of the topic's consumers."""
        return tuple(self._handlings)

    def of(self, consumer: str) -> Handling:
        """Return what became of the latest delivery at a consumer.

        Raises:
            KeyError: the topic has no such consumer.
        """
        found = self._handlings[consumer]
        return found[-1][1] if found else _UNSEEN

    def history(self, consumer: str | None = None) -> tuple[Handling, ...]:
        """Return what became of each delivery, in order; `consumer` may be left out if there is only one."""
        return tuple(handling for _, handling in self._handlings[consumer or self._only()])

    @property
    def deliveries(self) -> int:
        """How many deliveries were decided, at all consumers together."""
        return sum(map(len, self._handlings.values()))

    @property
    def applied(self) -> bool:
        """The handler ran, and its effects are committed."""
        return self._all(Status.APPLIED)

    @property
    def duplicate(self) -> bool:
        """The same message was applied before; the handler did not run."""
        return self._all(Status.DUPLICATE)

    @property
    def stale(self) -> bool:
        """A newer version had been applied; the handler did not run."""
        return self._all(Status.STALE)

    @property
    def expired(self) -> bool:
        """It was too old, and acknowledged; the handler did not run."""
        return self._all(Status.EXPIRED)

    @property
    def parked(self) -> bool:
        """It is kept in the ledger until its turn comes."""
        return self._all(Status.PARKED)

    @property
    def retried(self) -> bool:
        """It failed, and is delivered again after `next_in`."""
        return self._all(Status.RETRIED)

    @property
    def dead_letter(self) -> bool:
        """It is among the dead letters."""
        return self._all(Status.DEAD_LETTER)

    @property
    def waiting(self) -> bool:
        """It is neither finished nor charged with an attempt: deferred, or its consumer is paused; see `reason`."""
        return self._all(Status.WAITING)

    @property
    def status(self) -> Status:
        """The status at the only consumer."""
        return self.of(self._only()).status

    @property
    def reason(self) -> str:
        """The reason at the only consumer."""
        return self.of(self._only()).reason

    @property
    def code(self) -> str:
        """The dead letter's machine-readable reason at the only consumer."""
        return self.of(self._only()).code

    @property
    def error(self) -> BaseException | None:
        """The error at the only consumer."""
        return self.of(self._only()).error

    @property
    def result(self) -> Any:
        """The return value of the only consumer's handler."""
        return self.of(self._only()).result

    @property
    def attempt(self) -> int:
        """The latest attempt at the only consumer."""
        return self.of(self._only()).attempt

    @property
    def next_in(self) -> timedelta | None:
        """The pause before the retry at the only consumer."""
        return self.of(self._only()).next_in

    def _all(self, status: Status) -> bool:
        return bool(self._handlings) and all(self.of(name).status is status for name in self._handlings)

    def _only(self) -> str:
        if len(self._handlings) != 1:
            names = ", ".join(self._handlings) or "none"
            raise LookupError(
                f"topic {self.topic!r} has {len(self._handlings)} consumers ({names}): ask of(consumer)"
            )
        return next(iter(self._handlings))

    def _note(self, consumer: str, delivery: Delivery, handling: Handling) -> None:
        """Record what became of a delivery; replaces what was recorded of the same delivery."""
        found = self._handlings[consumer]
        if found and found[-1][0] is delivery:
            found.pop()
        found.append((delivery, handling))


def _described(handling: Handling) -> str:
    return f"{handling.status.value}{f' ({handling.reason})' if handling.reason else ''}"


class OutcomeRecorder(Observer):
    """Assigns the engine's events to published messages, by message id and attempt; from any thread.

    Attributes:
        changed: notified of every event.
    """

    def __init__(self) -> None:
        self.changed = Condition()
        self._outcomes: list[Outcome] = []
        self._by_id: dict[tuple[str, str], list[Outcome]] = {}
        self._of_delivery: dict[Delivery, tuple[str, Outcome]] = {}
        self._results: dict[Delivery, Any] = {}
        self._retries: dict[tuple[str, Outcome], tuple[Handling, float]] = {}

    def __repr__(self) -> str:
        return repr(self._outcomes)

    def expect(self, outcome: Outcome) -> None:
        """Record events of this message from now on."""
        with self.changed:
            self._outcomes.append(outcome)
            for consumer in outcome.consumers:
                self._by_id.setdefault((consumer, outcome.message_id), []).append(outcome)

    def withdraw(self, outcome: Outcome) -> None:
        """Expect this message no longer: its broker has refused it."""
        with self.changed:
            self._outcomes.remove(outcome)
            for consumer in outcome.consumers:
                self._by_id[consumer, outcome.message_id].remove(outcome)

    def handlings(self) -> Iterator[Handling]:
        """Yield the latest handling of every message at every consumer; hold `changed` meanwhile."""
        return (outcome.of(consumer) for outcome in self._outcomes for consumer in outcome.consumers)

    def all_seen(self) -> bool:
        """Return whether every message was delivered to all its consumers; hold `changed` meanwhile."""
        return all(handling is not _UNSEEN for handling in self.handlings())

    def retries_until(self, until: float) -> Callable[[], bool]:
        """Return whether the retries that are due until then have been delivered; hold `changed` meanwhile.

        Args:
            until: in seconds of `time.monotonic()`.
        """
        due = [
            (consumer, outcome, handling)
            for (consumer, outcome), (handling, at) in self._retries.items()
            if at <= until and outcome.of(consumer) is handling
        ]
        return lambda: all(outcome.of(consumer) is not handling for consumer, outcome, handling in due)

    def recording(self, handler: BoundHandler) -> BoundHandler:
        """Return the handler; its results are recorded."""
        call_batch = handler.call_batch

        def call(run: Run, item: Item) -> Any:
            answer = handler.call(run, item)
            if inspect.isawaitable(answer):
                return self._awaited(answer, [item])
            self._results[item.delivery] = answer
            return answer

        def batch(run: Run, items: list[Item]) -> Any:
            if call_batch is None:
                raise LookupError(f"{handler.name} is no batch handler")
            answer = call_batch(run, items)
            if inspect.isawaitable(answer):
                return self._awaited(answer, items)
            self._results.update(dict.fromkeys([item.delivery for item in items], answer))
            return answer

        return replace(handler, call=call, call_batch=None if call_batch is None else batch)

    async def _awaited(self, answer: Awaitable[Any], items: Sequence[Item]) -> Any:
        result = await answer
        self._results.update(dict.fromkeys([item.delivery for item in items], result))
        return result

    # Events of the engine

    def judged(self, consumer: str, verdicts: Sequence[tuple[Delivery, Verdict]]) -> None:
        """Record verdicts."""
        for delivery, verdict in verdicts:
            status = _STATUS.get(verdict.outcome)
            # A failure that is tried again at once is no outcome yet.
            at_once = verdict.outcome is Decision.DEFER and not verdict.delay
            if status is not None and not at_once:
                result = self._results.pop(delivery, None)
                code = verdict.code if status is Status.DEAD_LETTER else ""
                self._note(
                    consumer,
                    delivery,
                    Handling(
                        status,
                        delivery.message.attempt,
                        str(verdict.reason),
                        code,
                        verdict.error,
                        result if status is Status.APPLIED else None,
                    ),
                )

    def retried(
        self,
        consumer: str,
        delivery: Delivery,
        *,
        next_in: timedelta,
        reason: str = "",
        error: BaseException | None = None,
    ) -> None:
        """Record the pause before a retry."""
        handling = Handling(Status.RETRIED, delivery.message.attempt, reason, error=error, next_in=next_in)
        outcome = self._note(consumer, delivery, handling)
        if outcome is not None:
            self._retries[consumer, outcome] = handling, time.monotonic() + next_in.total_seconds()

    def dead_lettered(
        self,
        consumer: str,
        delivery: Delivery,
        *,
        code: str,
        reason: str = "",
        error: BaseException | None = None,
    ) -> None:
        """Record a dead letter."""
        attempt = delivery.message.attempt
        self._note(consumer, delivery, Handling(Status.DEAD_LETTER, attempt, reason, code, error))

    def consumer_paused(
        self,
        consumer: str,
        reason: PauseReason,
        *,
        retry_in: timedelta | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Record why the consumer's messages wait."""
        del retry_in
        text = f"consumer {consumer} is paused ({reason.value}): {error}"
        with self.changed:
            waiting = [
                (delivery, outcome)
                for delivery, (owner, outcome) in self._of_delivery.items()
                if owner == consumer and outcome.of(consumer).status is Status.WAITING
            ]
        for delivery, outcome in waiting:
            handling = replace(outcome.of(consumer), reason=text, error=error)
            self._note(consumer, delivery, handling)

    def _note(self, consumer: str, delivery: Delivery, handling: Handling) -> Outcome | None:
        with self.changed:
            outcome = self._find(consumer, delivery)
            if outcome is not None:
                self._of_delivery[delivery] = consumer, outcome
                outcome._note(consumer, delivery, handling)
            self.changed.notify_all()
            return outcome

    def _find(self, consumer: str, delivery: Delivery) -> Outcome | None:
        """Return the publication that a delivery belongs to: copies of a message have its id, too."""
        known = self._of_delivery.get(delivery)
        if known is not None:
            return known[1]
        same = self._by_id.get((consumer, delivery.message.message_id or ""), [])
        return next(
            (outcome for fits in _fits(delivery) for outcome in same if fits(outcome.of(consumer))), None
        )


def _fits(delivery: Delivery) -> Iterator[Callable[[Handling], bool]]:
    """Yield conditions on the latest handling of a publication, the most certain first."""
    attempt = delivery.message.attempt
    if attempt > 1:
        yield lambda last: last.status is Status.RETRIED and last.attempt == attempt - 1
    if delivery.source is not None:
        yield lambda last: last.status in {Status.PARKED, Status.RETRIED}
    yield lambda last: last is _UNSEEN
    yield lambda last: last.status is Status.WAITING
    yield lambda _: True
