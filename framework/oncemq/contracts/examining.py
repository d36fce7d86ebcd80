"""Asks brokers and Redis whether a consumer finds what it needs there, before it starts."""

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from oncemq.common.problems import Problem
from oncemq.contracts.adapter import Subscription
from oncemq.contracts.checks import ConsumerFacts
from oncemq.errors import RedisRefused


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


@runtime_checkable
class RedisStrategy(Protocol):
    """What a strategy may be, too, that needs Redis; asked by `oncemq check --connect`."""

    def missing_in_redis(self) -> Iterable[RedisRefused]:
        """Yield what the user may not do, with the rule that permits it; what is tried for that leaves nothing behind.

        Raises:
            RedisUnavailable: Redis does not answer.
        """
        ...


@runtime_checkable
class ConcernedAdapter(Protocol):
    """What an adapter may be, too: one that sees others do what makes this app's messages stay unread."""

    def concerns(self, subscriptions: Sequence[Subscription]) -> Sequence[str]:
        """Return what a person should know now, one sentence each; between `open` or `prepare` and `close`.

        While consuming, what was found by the last look, at the start and every minute: it never blocks on the network.

        Raises:
            BrokerError: the broker does not answer.
        """
        ...
