"""Describes a Kafka cluster for documents about an app: topics and groups, in AsyncAPI's kafka bindings."""

from collections.abc import Mapping
from typing import Any

from oncemq.contracts.adapter import Subscription
from oncemq.contracts.descriptions import ServerDescription, SubscriptionDescription, TopicDescription
from oncemq_adapters.kafka.address import Address
from oncemq_adapters.kafka.names import parse_topic, place_of

BINDING = "0.5.0"
_LOGINS = {"PLAIN": "plain", "SCRAM-SHA-256": "scramSha256", "SCRAM-SHA-512": "scramSha512"}


class KafkaDescription:
    """What AsyncAPI says of one cluster.

    Args:
        address: its address.
    """

    def __init__(self, address: Address) -> None:
        self._address = address

    def server(self) -> ServerDescription:
        """Return the hosts that the app connects to first."""
        address = self._address
        return ServerDescription(
            address.hosts,
            "kafka-secure" if address.tls else "kafka",
            login=_LOGINS.get(address.sasl, "userPassword") if address.username else "",
        )

    def topic(self, topic: str, options: Mapping[str, Any]) -> TopicDescription:
        """Return the topic by its name on the cluster."""
        parsed = parse_topic(topic, options, self._address.namespace)
        channel: dict[str, Any] = {"topic": parsed.name, "bindingVersion": BINDING}
        if parsed.partitions is not None:
            channel["partitions"] = parsed.partitions
        message = {"key": {"type": "string"}, "bindingVersion": BINDING}
        return TopicDescription(parsed.name, channel={"kafka": channel}, message={"kafka": message})

    def subscription(self, subscription: Subscription) -> SubscriptionDescription:
        """Return the group, and its own topics of retries and dead letters."""
        place = place_of(subscription, self._address.namespace)
        group = {"type": "string", "enum": [place.group]}
        return SubscriptionDescription(
            {"kafka": {"groupId": group, "bindingVersion": BINDING}},
            retries=place.retries,
            dead_letters=place.dead,
        )
