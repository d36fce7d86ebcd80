"""Answers of requests: a handler's committed result, or the stored one for a copy, is sent before the message is acknowledged.

A process that dies between the commit and the answer leaves the message with the broker. It comes again, is a duplicate, and is
answered by the stored result.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from pydantic_core import to_json

from oncemq.contracts.adapter import DeadLetterRequest, SettleFailed, Settling
from oncemq.contracts.strategy import Strategy, Traits
from oncemq.contracts.unit import Run
from oncemq.contracts.verdict import Outcome
from oncemq.errors import MessageRefused
from oncemq.message.envelope import Delivery
from oncemq.message.headers import ERROR_TEXT, REASON

_ANSWERED: Final = frozenset({Outcome.PROCEED, Outcome.DUPLICATE})
_FOR_REQUESTERS: Final = frozenset({"rejected", *(kind.reason for kind in MessageRefused.__subclasses__())})
"""Reasons of dead letters whose text is meant for who sent the message; that of an unexpected error may show what is inside."""


class Answers(Strategy):
    """Gives each delivery that was applied, now or before, its answer; a step of the chain of a consumer with `reply`."""

    traits: ClassVar[Traits] = Traits(decides=False)
    name = "reply"
    by_identity = True

    def committed(self, run: Run) -> None:
        """Note the results as JSON; the adapter sends those that are requested."""
        for item in run.items:
            if item.verdict is not None and item.verdict.outcome in _ANSWERED:
                item.delivery.answer = to_json(item.result, inf_nan_mode="constants")


class AnswerSettling:
    """Settles deliveries that are answered: gives dead letters the answer that says why, and tells what came of answers.

    Args:
        settling: settles the deliveries; the adapter sends their answers.
        told: called with what came of answers, and of how many.
    """

    def __init__(self, settling: Settling, told: Callable[[str, int], object]) -> None:
        self.retry = settling.retry
        self.give_back = settling.give_back
        self._settling = settling
        self._told = told

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Acknowledge these; their answers are sent before."""
        failed = self._settling.acknowledge(deliveries)
        self._tell(deliveries)
        return failed

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Dead-letter these; their answers are sent afterwards."""
        for request in dead:
            request.delivery.answer = failure_answer(request.headers)
        failed = self._settling.dead_letter(dead)
        self._tell([request.delivery for request in dead])
        return failed

    def _tell(self, deliveries: Sequence[Delivery]) -> None:
        for what, count in Counter(each.answered for each in deliveries if each.answered).items():
            self._told(what, count)
        for delivery in deliveries:
            delivery.answered = ""


def answering(
    settling: Settling, strategies: Sequence[Strategy], told: Callable[[str, int], object]
) -> Settling:
    """Return what settles the deliveries of a consumer with these strategies."""
    answers = any(isinstance(strategy, Answers) for strategy in strategies)
    return AnswerSettling(settling, told) if answers else settling


def failure_answer(headers: Mapping[str, str]) -> bytes:
    """Return what a requester is told of a dead letter with these headers, as JSON."""
    reason = headers.get(REASON, "")
    told = {"reason": reason}
    if reason in _FOR_REQUESTERS and headers.get(ERROR_TEXT):
        told["error"] = headers[ERROR_TEXT]
    return to_json(told)
