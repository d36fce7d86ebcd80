"""Descriptions of brokers: by the adapter where it can, else by the URL."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from oncemq.contracts.adapter import Adapter, Subscription
from oncemq.contracts.descriptions import (
    BrokerDescription,
    DescribedAdapter,
    ServerDescription,
    SubscriptionDescription,
    TopicDescription,
)


def description_of(adapter: Adapter, url: str) -> BrokerDescription:
    """Return a broker's description.

    Args:
        adapter: the broker's adapter.
        url: its URL, without user and password.
    """
    return adapter.description() if isinstance(adapter, DescribedAdapter) else _UrlDescription(url)


class _UrlDescription:
    """A broker of which only the URL is known."""

    def __init__(self, url: str) -> None:
        self._url = url

    def server(self) -> ServerDescription:
        parts = urlsplit(self._url)
        host = parts.netloc.rpartition("@")[2]
        return ServerDescription([host or "localhost"], parts.scheme, path=parts.path)

    def topic(self, topic: str, options: Mapping[str, Any]) -> TopicDescription:
        del options
        return TopicDescription(topic)

    def subscription(self, subscription: Subscription) -> SubscriptionDescription:
        del subscription
        return SubscriptionDescription()
