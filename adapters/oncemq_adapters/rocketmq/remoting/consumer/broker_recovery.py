"""Using a broker again that was away: name servers hear of it later than we do.

They drop a broker from routes as soon as it dies, and a route asked for meanwhile has only the others' queues.
"""

from collections.abc import Callable, Sequence

from oncemq_adapters.rocketmq.errors import FAILURES
from oncemq_adapters.rocketmq_client.connections import Route, Routes, TimerThread
from oncemq_adapters.rocketmq_client.errors import Denied

LOOK_EVERY = 1.0
LOOKS = 60
"""A broker tells the name servers of itself every 30 seconds at most."""


class BrokerRecovery:
    """Rebalances a member's queues when a broker is back, and once more when name servers know it again.

    Args:
        routes: queried again where it is missing.
        topics: the member's, by their real names.
        lookout: asks on its thread, which may have to wait long for a name server.
        rebalance: shares the queues out; called on any thread.
    """

    def __init__(
        self, routes: Routes, topics: Sequence[str], lookout: TimerThread, rebalance: Callable[[], None]
    ) -> None:
        self._routes = routes
        self._topics = topics
        self._lookout = lookout
        self._rebalance = rebalance
        # All of it is the lookout's business.
        self._looks: dict[str, int] = {}

    def use(self, broker: str) -> None:
        """Rebalance now, and when the name servers know the broker, should they not yet.

        Args:
            broker: its name; we are connected with it again.
        """
        self._rebalance()
        self._lookout.at(0, self._check, broker)

    def _check(self, broker: str) -> None:
        """Begin to look, or go on for longer, where a route that we remember lacks the broker."""
        looking = broker in self._looks
        if looking or not all(self._remembered(broker, topic) for topic in self._topics):
            self._looks[broker] = LOOKS
            if not looking:
                self._lookout.at(LOOK_EVERY, self._look, broker)

    def _look(self, broker: str) -> None:
        left = self._looks.pop(broker) - 1
        if self._known(broker):
            # It tells of all its topics at once; those asked for first may have been answered before that.
            self._known(broker)
            self._rebalance()
        elif left:
            self._looks[broker] = left
            self._lookout.at(LOOK_EVERY, self._look, broker)

    def _remembered(self, broker: str, topic: str) -> bool:
        try:
            return _has(broker, self._routes.find(topic))
        except FAILURES:
            return False

    def _known(self, broker: str) -> bool:
        """Ask for the topics; return whether one of them has queues on the broker."""
        known = False
        for topic in self._topics:
            try:
                known = _has(broker, self._routes.ask(topic)) or known
            except Denied:
                continue
            except FAILURES:
                break
        return known


def _has(broker: str, route: Route) -> bool:
    return any(name == broker for name, _ in route.readable)
