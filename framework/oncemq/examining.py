"""What some brokers can be asked besides: whether they have what a consumer needs, before it starts."""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from oncemq.facts import ConsumerFacts, Problem


@runtime_checkable
class ExaminingAdapter(Protocol):
    """What an adapter may be, too; asked by `oncemq check --connect`, between `prepare` and `close`."""

    def examine(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return what the broker lacks, or has otherwise than this consumer needs; nothing is changed or consumed.

        What a start would make by itself is no problem, and what `check` has said needs not be said again.

        Raises:
            BrokerError: the broker does not answer, or does not let us ask.
        """
        ...
