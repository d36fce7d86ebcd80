"""Runs a consumer's `on_dead` function before the dead letter of a message is sent: once, in a transaction of its own."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Protocol

from oncemq.common.clock import Clock
from oncemq.common.error_text import MAX_ERROR_TEXT, describe
from oncemq.contracts.adapter import DeadLetterRequest
from oncemq.contracts.final_failure import FinalFailure
from oncemq.contracts.unit import Unit
from oncemq.contracts.verdict import PROCEED, Outcome, Verdict
from oncemq.engine.base.final_failures import APPLIED, UNDONE
from oncemq.ledger.records import suspects
from oncemq.message import headers
from oncemq.message.envelope import Delivery

_LONGEST = 3600.0
"""Seconds; a unit of one message has no neighbour that it could keep waiting."""
_PAUSE = 1.0
_MAX_SAID = 500
"""Characters of its error in a dead letter's header, which no copy may drop: `replay` looks for it."""
_DEATHS = 2
"""A function that ended its process so often for one message is not run for it again."""
_LATER = frozenset({Outcome.DEFER, Outcome.RETURNED, Outcome.WAIT})


DONE = "done"
"""In the header of a dead letter whose function has taken effect."""
APPLIED_MEANWHILE = "a copy of it was applied while it failed"

Dead = tuple[DeadLetterRequest, Verdict, str]
"""A dead letter, the verdict, and the reason as a code."""


class Ending(Enum):
    """What became of the function's run."""

    DONE = auto()
    """It took effect, now or before."""
    APPLIED = auto()
    """A copy of the message was applied meanwhile: it has not failed."""
    FAILED = auto()
    """Nothing of it took effect."""
    LEFT = auto()
    """The process ends; the message stays unsettled."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How the function ended for a message.

    Args:
        ending: what became of it.
        error: why it failed; empty otherwise.
    """

    ending: Ending
    error: str = ""


class Result(Protocol):
    """What a unit of one message came to."""

    @property
    def verdicts(self) -> dict[Delivery, Verdict]:
        """One per delivery."""
        ...

    @property
    def trouble(self) -> Exception | None:
        """Why nothing can run now."""
        ...


class OnDead:
    """The function of one consumer; one message at a time.

    Args:
        consumer: the scope of ledger rows.
        execute: runs a unit of one message on a shard, with the function in place of the handler.
        shard_of: the shard of a key.
        clock: the source of time.
        deaths: how often processes died, by identity and by `suspects.on_dead(identity)`.
        give_up: whether to stop trying (the process is ending).
        sleep: waits seconds.
        failed: called with its errors, and with those of the database, which are waited for.
    """

    def __init__(
        self,
        consumer: str,
        execute: Callable[[int, Unit], Result],
        shard_of: Callable[[str], int],
        clock: Clock,
        deaths: Callable[[], Mapping[str, int]],
        give_up: Callable[[], bool],
        sleep: Callable[[float], object],
        failed: Callable[[str, BaseException], None],
    ) -> None:
        self._consumer = consumer
        self._execute = execute
        self._shard_of = shard_of
        self._clock = clock
        self._deaths = deaths
        self._give_up = give_up
        self._sleep = sleep
        self._failed = failed
        self._lock = threading.Lock()

    def before(
        self, dead: Sequence[Dead], reason: Callable[[Verdict], str], clean: Callable[[str], str]
    ) -> tuple[list[Dead], list[Delivery]]:
        """Run the function for each; returns the dead letters to send, and deliveries that are none any more.

        Args:
            dead: what is about to be sent.
            reason: returns a verdict's reason, secrets masked.
            clean: masks secrets.
        """
        letters, applied = [], []
        for letter, verdict, code in dead:
            text = reason(verdict) or (clean(describe(verdict.error)) if verdict.error is not None else code)
            tries = int(letter.headers.get(headers.ATTEMPT, letter.delivery.message.attempt))
            ended = self.run(letter.delivery, FinalFailure(code, text[:MAX_ERROR_TEXT], tries))
            if ended.ending is Ending.APPLIED:
                applied.append(letter.delivery)
            elif ended.ending is not Ending.LEFT:
                said = DONE if ended.ending is Ending.DONE else clean(f"failed: {ended.error}")
                marked = replace(letter, headers={**letter.headers, headers.ON_DEAD: said})
                letters.append((marked, verdict, code))
        return letters, applied

    def run(self, delivery: Delivery, failure: FinalFailure) -> Ended:
        """Run the function for a message with a key; waits for an unavailable database."""
        envelope = delivery.envelope
        if envelope is None:
            return Ended(Ending.FAILED, "the message could not be read, so it has no identity")
        if self._deaths().get(suspects.on_dead(envelope.identity), 0) >= _DEATHS:
            return Ended(Ending.FAILED, f"its process ended {_DEATHS} times while it ran")
        shard = self._shard_of(delivery.key)
        with self._lock:
            while True:
                verdict = self._try(shard, delivery, failure)
                if verdict is not None and verdict.outcome not in _LATER:
                    return self._ended(verdict)
                if self._give_up():
                    return Ended(Ending.LEFT)
                self._sleep(_PAUSE)

    def _try(self, shard: int, delivery: Delivery, failure: FinalFailure) -> Verdict | None:
        unit = Unit(self._consumer, [delivery], self._clock.monotonic() + _LONGEST)
        unit.notes[FinalFailure] = failure
        result = self._execute(shard, unit)
        if result.trouble is not None:
            self._failed("a consumer's on_dead function", result.trouble)
            return None
        return result.verdicts[delivery]

    def _ended(self, verdict: Verdict) -> Ended:
        if verdict is PROCEED or verdict.code == UNDONE:
            return Ended(Ending.DONE)
        if verdict.code == APPLIED:
            return Ended(Ending.APPLIED)
        if verdict.error is not None:
            self._failed("a consumer's on_dead function", verdict.error)
        return Ended(Ending.FAILED, verdict.reason[:_MAX_SAID] or verdict.outcome.value)
