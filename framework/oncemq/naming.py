"""What some brokers can be asked besides: by which names the places of a consumer group go, where nobody else may be."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from oncemq.adapter import Subscription


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
