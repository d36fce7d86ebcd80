"""What some brokers can be asked besides: by which names the places of a consumer group go, where nobody else may be."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from oncemq.contracts.adapter import Subscription


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
