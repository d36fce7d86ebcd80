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
) -> None:
    """Rebalance; and once more as soon as the name servers know the broker again, should they not yet.

    They drop a broker from routes as soon as it dies, and a route asked for meanwhile has only the others' queues.

    Args:
        broker: its name; we are connected with it again.
        routes: are asked for anew where it is missing.
        topics: by their real names.
        steward: looks again on its thread.
        rebalance: shares the queues out.
    """
    rebalance()
    if not _known(broker, routes, topics):
        steward.at(LOOK_EVERY, _look, broker, routes, topics, steward, rebalance, LOOKS)


def _look(
    broker: str,
    routes: Routes,
    topics: Sequence[str],
    steward: Steward,
    rebalance: Callable[[], None],
    looks: int,
) -> None:
    routes.refresh()
    if _known(broker, routes, topics):
        rebalance()
    elif looks > 1:
        steward.at(LOOK_EVERY, _look, broker, routes, topics, steward, rebalance, looks - 1)


def _known(broker: str, routes: Routes, topics: Sequence[str]) -> bool:
    return any(name == broker for topic in topics for name, _ in _readable(routes, topic))


def _readable(routes: Routes, topic: str) -> Sequence[tuple[str, int]]:
    try:
        return routes.find(topic).readable
    except BrokerError:
        return ()
