"""Optional parts of the broker contract: further queries that some brokers can answer."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from oncemq.common.problems import Problem
from oncemq.contracts.adapter import Subscription
from oncemq.contracts.checks import ConsumerFacts
from oncemq.errors import RedisRefused


@dataclass(frozen=True, slots=True)
class PrivateNames:
    """Names of the queues and groups of one subscription.

    Args:
        broker: their location without credentials; equal for two apps with the same address.
        names: each name with its content, such as `queue` or `dead letters`; the same for every member of the group.
    """

    broker: str
    names: Mapping[str, str]


@runtime_checkable
class NamingAdapter(Protocol):
    """Optional protocol of an adapter; called before it is connected."""

    def private_names(self, subscription: Subscription) -> PrivateNames | None:
        """Return the names that only this subscription may use; None where no other process can reach them.

        Raises:
            ConfigError: its options are not usable.
        """
        ...


@runtime_checkable
class PruningAdapter(Protocol):
    """Optional protocol of an adapter that can remove a group's private places; called between `prepare` and `close`."""

    def remove_places(self, broker: str, names: Sequence[str]) -> Sequence[str]:
        """Remove the places that `private_names` returned, with their content; returns those removed.

        Args:
            broker: their location, as `PrivateNames.broker`; elsewhere nothing is removed.
            names: all names of these subscriptions. A queue that others declared stays.

        Raises:
            BrokerError: the broker does not answer, or denies permission.
        """
        ...


def names_of(adapter: object, broker: str, subscription: Subscription) -> PrivateNames | None:
    """Return the names of a subscription, also for a broker without `private_names`.

    Args:
        adapter: the broker's adapter.
        broker: its name in the app.
        subscription: the subscription in question.
    """
    if isinstance(adapter, NamingAdapter):
        return adapter.private_names(subscription)
    return PrivateNames(
        f"broker {broker}", {group_on_topic(subscription.group, subscription.topic): "messages"}
    )


def group_on_topic(group: str, topic: str) -> str:
    """Return the name for what members of a group share, on brokers with built-in groups."""
    return f"group {group} on topic {topic}"


def split_group_on_topic(name: str) -> tuple[str, str]:
    """Return group and topic of a name made by `group_on_topic`; empty for other names."""
    found = re.fullmatch(r"group (\S+) on topic (.+)", name, re.DOTALL)
    return (found[1], found[2]) if found is not None else ("", "")


@runtime_checkable
class RouteSelecting(Protocol):
    """Optional protocol of an adapter whose broker can deliver the messages of a consumer's routes alone; called without a connection."""

    def route_options(self, by: str, values: Sequence[str], options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a topic's options with which a consumer receives the messages of its routes, and no others.

        Args:
            by: the expression of the value that chooses the route.
            values: those of all routes.
            options: the topic's, as declared.

        Raises:
            ConfigError: the broker cannot select by this value, or what the options say contradicts it; `where` of its problems
                is as in `check`.
        """
        ...


@runtime_checkable
class PrioritizingAdapter(Protocol):
    """Optional protocol of an adapter whose broker delivers urgent messages first; called without a connection.

    `publish` finds a message's priority in its header `oncemq.message.headers.PRIORITY`, which is not sent as one.
    """

    def highest_priority(self, topic: str, options: Mapping[str, Any]) -> int:
        """Return the highest priority that a topic's messages may have; 0 where it declares none."""
        ...


@runtime_checkable
class ExaminingAdapter(Protocol):
    """Optional protocol of an adapter; called by `oncemq check --connect`, between `prepare` and `close`."""

    def examine(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return what the broker lacks, or has configured differently than this consumer needs; changes and consumes nothing.

        What a start would create is not a problem, and what `check` reports is not repeated.

        Raises:
            BrokerError: the broker does not answer, or denies permission.
        """
        ...


@runtime_checkable
class PartlyExamining(Protocol):
    """Optional protocol of an adapter that cannot compare everything; called by `oncemq check --connect` after `examine`."""

    def not_examined(self) -> Iterable[str]:
        """Return what could not be compared at this broker, and what would make it possible; a phrase each."""
        ...


@runtime_checkable
class NamedMember(Protocol):
    """Optional protocol of an adapter whose processes may be known to the broker by a name that the user has given."""

    def member_name(self) -> str | None:
        """Return the option that names this process, as written in YAML; None where two processes may run side by side."""
        ...


@runtime_checkable
class VersionedAdapter(Protocol):
    """Optional protocol of an adapter whose broker tells its version; called by `oncemq doctor`, between `prepare` and `close`."""

    def server_version(self) -> str:
        """Return the broker's name and version, such as `RabbitMQ 4.1.0`.

        Raises:
            BrokerError: the broker does not answer.
        """
        ...


@runtime_checkable
class PublishingExaminer(Protocol):
    """Optional protocol of an adapter; called by `oncemq check --connect` for topics that the app only publishes to."""

    def examine_publishing(self, topic: str, options: Mapping[str, Any]) -> Iterable[Problem]:
        """Return what keeps this app from publishing to a topic; creates and publishes nothing.

        Args:
            topic: its name in the app.
            options: the adapter's options of the topic.

        Raises:
            BrokerError: the broker does not answer, or denies permission.
        """
        ...


@runtime_checkable
class RedisStrategy(Protocol):
    """Optional protocol of a strategy that needs Redis; called by `oncemq check --connect`."""

    def missing_in_redis(self) -> Iterable[RedisRefused]:
        """Yield the permissions that the Redis user lacks, with the rule that grants each; the probes leave nothing behind.

        Raises:
            RedisUnavailable: Redis does not answer.
        """
        ...


@runtime_checkable
class ConcernedAdapter(Protocol):
    """Optional protocol of an adapter that notices when other clients cause this app's messages to stay unread."""

    def concerns(self, subscriptions: Sequence[Subscription]) -> Sequence[str]:
        """Return what a person should know now, one sentence each; between `open` or `prepare` and `close`.

        While consuming it returns the result of the last look (at the start and every minute): it never blocks on the network.

        Raises:
            BrokerError: the broker does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Backlog:
    """Messages of a group at its broker; None for a figure that the broker does not tell.

    Args:
        ready: waiting to be delivered.
        unacknowledged: delivered and not settled yet.
        retries: waiting for the time of their next attempt.
        next_retry: when the first of these is due at the latest, aware.
        unknown: which figures are None and how to get them, for people; empty if all are there.
    """

    ready: int | None = None
    unacknowledged: int | None = None
    retries: int | None = None
    next_retry: datetime | None = None
    unknown: str = ""


@runtime_checkable
class DeadLetterCounter(Protocol):
    """Optional protocol of an adapter whose broker counts dead letters by itself; called for the metrics, between `open` and `close`."""

    def dead_letter_count(self, subscription: Subscription) -> int:
        """Return how many dead letters of the group there are, without reading them.

        Raises:
            BrokerError: the broker does not answer.
        """
        ...


@runtime_checkable
class BacklogAdapter(Protocol):
    """Optional protocol of an adapter that knows more than `depth`; called by `oncemq status`, between `prepare` and `close`."""

    def backlog(self, subscription: Subscription) -> Backlog:
        """Return the group's messages by what they wait for.

        Raises:
            BrokerError: the broker does not answer.
        """
        ...
