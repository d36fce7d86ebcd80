"""Optional parts of the broker contract: what some brokers can be asked besides."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from oncemq.common.problems import Problem
from oncemq.contracts.adapter import Subscription
from oncemq.contracts.checks import ConsumerFacts
from oncemq.errors import RedisRefused


@dataclass(frozen=True, slots=True)
class PrivateNames:
    """The places of one subscription.

    Args:
        broker: where they are, credentials left out; equal for two apps that were told the same address.
        names: each name with what lies there, such as `queue` or `dead letters`; every member of the group has the same.
    """

    broker: str
    names: Mapping[str, str]


@runtime_checkable
class NamingAdapter(Protocol):
    """What an adapter may be, too; asked before it is connected."""

    def private_names(self, subscription: Subscription) -> PrivateNames | None:
        """Return the names that only this subscription may use; None where no other process can reach them.

        Raises:
            ConfigError: its options cannot work.
        """
        ...


@runtime_checkable
class PruningAdapter(Protocol):
    """What an adapter may be, too: one that can remove what a group had for itself; asked between `prepare` and `close`."""

    def remove_places(self, broker: str, names: Sequence[str]) -> Sequence[str]:
        """Remove the places that `private_names` has named, with everything that lies there; returns those removed.

        Args:
            broker: where they are, as `PrivateNames.broker`; elsewhere nothing is removed.
            names: all names of the subscriptions meant. A queue that others declared stays.

        Raises:
            BrokerError: the broker does not answer, or does not let us.
        """
        ...


def names_of(adapter: object, broker: str, subscription: Subscription) -> PrivateNames | None:
    """Return the names of a subscription, also on a broker that cannot be asked.

    Args:
        adapter: of the broker.
        broker: its name in the app.
        subscription: what is asked about.
    """
    if isinstance(adapter, NamingAdapter):
        return adapter.private_names(subscription)
    return PrivateNames(
        f"broker {broker}", {group_on_topic(subscription.group, subscription.topic): "messages"}
    )


def group_on_topic(group: str, topic: str) -> str:
    """Return the name of what members of a group share, where the broker knows groups by itself."""
    return f"group {group} on topic {topic}"


def split_group_on_topic(name: str) -> tuple[str, str]:
    """Return group and topic of a name that `group_on_topic` made; empty where it made another."""
    found = re.fullmatch(r"group (\S+) on topic (.+)", name, re.DOTALL)
    return (found[1], found[2]) if found is not None else ("", "")


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
