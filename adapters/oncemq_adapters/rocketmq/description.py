"""Describes RocketMQ for documents about an app; AsyncAPI defines no bindings for it, so these are facts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oncemq.contracts.adapter import Subscription
from oncemq.contracts.descriptions import ServerDescription, SubscriptionDescription, TopicDescription
from oncemq_adapters.rocketmq.names import (
    TopicOptions,
    group_of,
    parse_topic,
)
from oncemq_adapters.rocketmq_client.names import dead_topic, retry_topic

_OF_PROXY = "message_type"
"""The only topic option that one driver alone has: what a proxy makes a missing topic for."""


class RocketMQDescription:
    """What AsyncAPI says of one RocketMQ.

    Args:
        hosts: `host:port` of its name servers, or of its proxy.
        protocol: `rocketmq`, or `rocketmq+grpc` through a proxy.
        namespace: in front of every topic and group; empty = none.
        login: clients log in by an access key.
        tls: connections are encrypted.
        retries: returns the topic of a group's retries on a topic, by the real names; by default the group's one.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        protocol: str,
        namespace: str,
        *,
        login: bool,
        tls: bool,
        retries: Callable[[str, str], str] = lambda group, _: retry_topic(group),
    ) -> None:
        self._hosts = hosts
        self._protocol = protocol
        self._namespace = namespace
        self._login = login
        self._tls = tls
        self._retries = retries

    def server(self) -> ServerDescription:
        """Return where clients connect first."""
        facts: dict[str, Any] = {"tls": True} if self._tls else {}
        if self._namespace:
            facts["namespace"] = self._namespace
        return ServerDescription(
            self._hosts, self._protocol, login="userPassword" if self._login else "", facts=facts
        )

    def topic(self, topic: str, options: Mapping[str, Any]) -> TopicDescription:
        """Return the topic by its name on the brokers."""
        parsed = self._parsed(topic, options)
        facts: dict[str, Any] = {"topic": parsed.name}
        if parsed.fifo:
            facts["fifo"] = True
        return TopicDescription(parsed.name, facts={"rocketmq": facts})

    def subscription(self, subscription: Subscription) -> SubscriptionDescription:
        """Return the group, what it subscribes to, and its own topics of retries and dead letters."""
        group = group_of(subscription, self._namespace)
        topic = self._parsed(subscription.topic, subscription.options)
        chosen = topic.selection
        return SubscriptionDescription(
            retries=self._retries(group, topic.name),
            dead_letters=dead_topic(group),
            facts={"rocketmq": {"group": group, "expression": chosen.text, "type": chosen.kind}},
        )

    def _parsed(self, topic: str, options: Mapping[str, Any]) -> TopicOptions:
        common = {name: value for name, value in options.items() if name != _OF_PROXY}
        return parse_topic(topic, common, self._namespace)
