"""Connections to brokers of which the processes that a handler forks have nothing."""

from collections.abc import Callable

from oncemq.common.forked import withhold
from oncemq_adapters.rocketmq_client.cluster import Cluster
from oncemq_adapters.rocketmq_client.connections import Brokers, Routes
from oncemq_adapters.rocketmq_client.protocol import Connection, Deferred, Frame


def withheld_brokers(
    cluster: Cluster,
    routes: Routes,
    hello: Callable[[Connection], None],
    on_request: Callable[[str, Frame], bytes | Deferred | None] | None = None,
    on_close: Callable[[str], None] | None = None,
) -> Brokers:
    """Return connections that end with this process, also where it has forked others.

    Args:
        cluster: how to connect.
        routes: who the brokers are.
        hello: introduces a new connection to its broker.
        on_request: answers what the broker of a name asks.
        on_close: called with lost connections.
    """
    brokers = Brokers(cluster, routes, hello, on_request, on_close)
    withhold(brokers, Brokers.descriptors)
    return brokers
