"""Answers of requests: a handler's committed result, or the stored one for a copy, is sent before the message is acknowledged.

A process that dies between the commit and the answer leaves the message with the broker. It comes again, is a duplicate, and is
answered by the stored result.
"""

from typing import ClassVar

from pydantic_core import to_json

from oncemq.contracts.strategy import Strategy, Traits
from oncemq.contracts.unit import Run
from oncemq.contracts.verdict import DUPLICATE, PROCEED


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
