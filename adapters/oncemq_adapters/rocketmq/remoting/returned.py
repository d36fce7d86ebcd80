"""Using a broker again that was away: name servers hear of it later than we do."""

from collections.abc import Callable, Sequence

from oncemq.errors import BrokerError
from oncemq_adapters.rocketmq.remoting.routes import Routes
from oncemq_adapters.rocketmq.remoting.steward import Steward

LOOK_EVERY = 1.0
LOOKS = 60
"""A broker tells the name servers of itself every 30 seconds at most."""


def use_again(
    broker: str,
    routes: Routes,
    topics: Sequence[str],
    steward: Steward,
    rebalance: Callable[[], None],
    looks: int = LOOKS,
) -> None:
    """Rebalance as soon as the name servers say that one of the topics has queues on the broker.

    They drop a broker from routes as soon as it dies, and a route asked for meanwhile has only the others' queues.

    Args:
        broker: its name; we are connected with it again.
        routes: are asked for anew.
        topics: by their real names.
        steward: looks again on its thread.
        rebalance: called once, or never if the broker has no queues of these topics any more.
        looks: how often to look at most.
    """
    routes.refresh()
    if any(name == broker for topic in topics for name, _ in _readable(routes, topic)):
        rebalance()
    elif looks > 1:
        steward.at(LOOK_EVERY, use_again, broker, routes, topics, steward, rebalance, looks - 1)


def _readable(routes: Routes, topic: str) -> Sequence[tuple[str, int]]:
    try:
        return routes.find(topic).readable
    except BrokerError:
        return ()
