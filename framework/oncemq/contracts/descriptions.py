"""Optional part of the broker contract: what a document about the app says of its brokers, topics and groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from oncemq.contracts.adapter import Subscription

Bindings = Mapping[str, Mapping[str, Any]]
"""AsyncAPI's binding objects, by the protocol that AsyncAPI knows."""


@dataclass(frozen=True, slots=True)
class ServerDescription:
    """A broker's address, without users and passwords.

    Args:
        hosts: `host:port` each.
        protocol: as AsyncAPI names it, such as `amqp`.
        version: of the protocol; empty = not stated.
        path: what follows the host in its URL, such as the virtual host; empty = none.
        login: how clients log in, as AsyncAPI names the type of a security scheme; empty = they do not.
        facts: further facts, by a name in lower case with hyphens.
    """

    hosts: Sequence[str]
    protocol: str
    version: str = ""
    path: str = ""
    login: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic's place on its broker.

    Args:
        address: where its messages are published, in the broker's own words; a part in braces is a parameter.
        parameters: the values of each parameter of the address.
        channel: bindings of the channel.
        sending: bindings of an operation that publishes.
        message: bindings of its messages.
        facts: further facts, by a name in lower case with hyphens.
    """

    address: str
    parameters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    channel: Bindings = field(default_factory=dict)
    sending: Bindings = field(default_factory=dict)
    message: Bindings = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SubscriptionDescription:
    """A group's places on its broker.

    Args:
        receiving: bindings of the operation that receives.
        retries: where its retries wait; empty = the broker has no place of its own for them.
        dead_letters: where its dead letters are kept; empty = the broker has no place of its own for them.
        facts: further facts, by a name in lower case with hyphens.
    """

    receiving: Bindings = field(default_factory=dict)
    retries: str = ""
    dead_letters: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


class BrokerDescription(Protocol):
    """Describes a broker and what an app uses of it; connects to nothing."""

    def server(self) -> ServerDescription:
        """Return where the broker is."""
        ...

    def topic(self, topic: str, options: Mapping[str, Any]) -> TopicDescription:
        """Return where a topic's messages are published.

        Args:
            topic: its name in the app.
            options: the adapter's options of the topic.

        Raises:
            ConfigError: its options are not usable.
        """
        ...

    def subscription(self, subscription: Subscription) -> SubscriptionDescription:
        """Return what belongs to one group.

        Raises:
            ConfigError: its options are not usable.
        """
        ...


@runtime_checkable
class DescribedAdapter(Protocol):
    """Optional protocol of an adapter; called by `oncemq asyncapi`, before the adapter is connected."""

    def description(self) -> BrokerDescription:
        """Return the broker's description."""
        ...
