"""Answers of requests: a handler's committed result, or the stored one for a copy, is sent before the message is acknowledged.

A process that dies between the commit and the answer leaves the message with the broker. It comes again, is a duplicate, and is
answered by the stored result.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from pydantic_core import to_json

from oncemq.contracts.adapter import DeadLetterRequest, SettleFailed, Settling
from oncemq.contracts.strategy import Strategy, Traits
from oncemq.contracts.unit import Run
from oncemq.contracts.verdict import DUPLICATE, PROCEED
from oncemq.errors import MessageRefused
from oncemq.message.headers import ERROR_TEXT, REASON

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
            if item.verdict is PROCEED or item.verdict is DUPLICATE:
                item.delivery.answer = to_json(item.result, inf_nan_mode="constants")


class AnsweredFailures:
    """Gives each delivery that becomes a dead letter the answer that says why, and settles it.

    Args:
        settling: settles the deliveries.
    """

    def __init__(self, settling: Settling) -> None:
        self.acknowledge = settling.acknowledge
        self.retry = settling.retry
        self.give_back = settling.give_back
        self._dead_letter = settling.dead_letter

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """As the one that settles; the adapter sends the answers of those that are dead letters then."""
        for request in dead:
            request.delivery.answer = failure_answer(request.headers)
        return self._dead_letter(dead)


def with_failures(settling: Settling, strategies: Sequence[Strategy]) -> Settling:
    """Return what settles the deliveries of a consumer with these strategies."""
    answering = any(isinstance(strategy, Answers) for strategy in strategies)
    return AnsweredFailures(settling) if answering else settling


def failure_answer(headers: Mapping[str, str]) -> bytes:
    """Return what a requester is told of a dead letter with these headers, as JSON."""
    reason = headers.get(REASON, "")
    told = {"reason": reason}
    if reason in _FOR_REQUESTERS and headers.get(ERROR_TEXT):
        told["error"] = headers[ERROR_TEXT]
    return to_json(told)
