"""A broker that was away is used again as soon as the name servers know of it."""

from collections.abc import Callable
from typing import Any

from oncemq.errors import BrokerRefused
from oncemq_adapters.rocketmq.remoting.returned import LOOKS, use_again
from oncemq_adapters.rocketmq.remoting.routes import Route


class Routes:
    """What the name servers say, one answer for each look; the last one stays."""

    def __init__(self, *answers: list[str] | None) -> None:
        self._answers = list(answers)
        self.looks = 0

    def refresh(self) -> None:
        """Look."""
        self.looks += 1
        if len(self._answers) > 1:
            del self._answers[0]

    def find(self, _topic: str) -> Route:
        """Return a queue on each broker that is known."""
        if self._answers[0] is None:
            raise BrokerRefused("there is no such topic")
        return Route(tuple((broker, 0) for broker in self._answers[0]), ())


class Steward:
    """Does at once what is asked for later."""

    def __init__(self) -> None:
        self.delays: list[float] = []

    def at(self, delay: float, job: Callable[..., object], *arguments: Any) -> None:
        """Do it."""
        self.delays.append(delay)
        job(*arguments)


def rebalances(routes: Routes, steward: Steward) -> int:
    """Return how often the queues are shared out after broker `b` is back."""
    done: list[str] = []
    use_again("b", routes, ["orders"], steward, lambda: done.append("rebalanced"))  # type: ignore[arg-type]
    return len(done)


def test_a_broker_that_is_known_is_used_at_once() -> None:
    """One rebalance, and no question to the name servers."""
    routes, steward = Routes(["a", "b"]), Steward()
    assert rebalances(routes, steward) == 1
    assert (routes.looks, steward.delays) == (0, [])


def test_until_it_is_known_somebody_looks_each_second() -> None:
    """A route from which it is missing, and none at all, are asked for again."""
    routes, steward = Routes(["a"], None, ["a"], ["a", "b"]), Steward()
    assert rebalances(routes, steward) == 2
    assert (routes.looks, steward.delays) == (3, [1.0, 1.0, 1.0])


def test_nobody_looks_for_ever() -> None:
    """A topic may have been taken from the broker meanwhile."""
    routes = Routes(["a"])
    assert rebalances(routes, Steward()) == 1
    assert routes.looks == LOOKS
