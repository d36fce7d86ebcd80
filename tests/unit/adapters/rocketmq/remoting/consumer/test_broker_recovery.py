"""A broker that was away is used again as soon as the name servers know of it, and no one else waits for those."""

from collections.abc import Callable, Mapping
from threading import Event
from typing import Any

from oncemq.errors import BrokerRefused, BrokerUnavailable
from oncemq_adapters.rocketmq.address import parse_address
from oncemq_adapters.rocketmq.names import parse_topic
from oncemq_adapters.rocketmq.remoting.consumer.broker_recovery import LOOKS, BrokerRecovery
from oncemq_adapters.rocketmq.remoting.consumer.group_member import Member
from oncemq_adapters.rocketmq.remoting.consumer.prefetch_window import PrefetchWindow
from oncemq_adapters.rocketmq.remoting.consumer.subscriptions import Part
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.connections import Route
from oncemq_adapters.rocketmq_client.errors import Denied

MISSING = Denied("n:1", codes.NO_TOPIC, "no route", {})
AWAY = BrokerUnavailable("no name server answers")


class Routes:
    """What is remembered, and what the name servers say at each look: the brokers of each topic; the last one stays."""

    masters: dict[str, str] = {}  # noqa: RUF012 - no one is connected here

    def __init__(self, remembered: str, *looks: str | Mapping[str, str] | Exception) -> None:
        self._remembered: dict[str, str] = dict.fromkeys(("orders", "%RETRY%g"), remembered)
        self._looks = list(looks)
        self.asked: list[str] = []

    def find(self, topic: str) -> Route:
        """Return a queue on each broker that is remembered."""
        if not self._remembered[topic]:
            raise BrokerRefused("there is no such topic")
        return Route(tuple((broker, 0) for broker in self._remembered[topic]), ())

    def ask(self, topic: str) -> Route:
        """Return a queue on each broker that is known now."""
        self.asked.append(topic)
        answer = self._looks[0]
        if len(self._looks) > 1 and (topic == "%RETRY%g" or answer is AWAY):
            del self._looks[0]
        if isinstance(answer, Exception):
            raise answer
        self._remembered[topic] = answer if isinstance(answer, str) else answer[topic]
        return self.find(topic)


class Steward:
    """Does at once what is asked for later, unless it shall wait for a word."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.waits = False
        self.jobs: list[Callable[[], object]] = []

    def at(self, delay: float, job: Callable[..., object], *arguments: Any) -> None:
        """Do it."""
        if delay:
            self.delays.append(delay)
        if delay and self.waits:
            self.jobs.append(lambda: job(*arguments))
        else:
            job(*arguments)


class Bench:
    """A member's rebalances after broker `b` is back."""

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self.steward = Steward()
        self.rebalances = 0
        steward: Any = self.steward
        topics = ["orders", "%RETRY%g"]
        self.returned = BrokerRecovery(routes, topics, steward, self._rebalance)  # type: ignore[arg-type]

    def _rebalance(self) -> None:
        self.rebalances += 1


def test_a_broker_that_is_known_is_used_at_once() -> None:
    """One rebalance, and no question to the name servers."""
    bench = Bench(Routes("ab"))
    bench.returned.use("b")
    assert (bench.rebalances, bench.routes.asked, bench.steward.delays) == (1, [], [])


def test_until_it_is_known_one_process_looks_each_second() -> None:
    """A route from which it is missing, none at all, and silence are asked again, for the member's topics alone."""
    bench = Bench(Routes("a", MISSING, AWAY, "a", "ab"))
    bench.returned.use("b")
    assert (bench.rebalances, bench.steward.delays) == (2, [1.0, 1.0, 1.0, 1.0])
    assert set(bench.routes.asked) == {"orders", "%RETRY%g"}


def test_a_topic_that_was_asked_for_too_early_is_asked_for_again() -> None:
    """The broker may come back between two questions; the rebalance finds it in both routes."""
    bench = Bench(Routes("a", {"orders": "a", "%RETRY%g": "ab"}, "ab"))
    bench.returned.use("b")
    assert [bench.routes.find(topic).readable[-1][0] for topic in ("orders", "%RETRY%g")] == ["b", "b"]
    assert (bench.rebalances, bench.steward.delays) == (2, [1.0])


def test_no_process_looks_without_end() -> None:
    """A topic may have been taken from the broker meanwhile."""
    bench = Bench(Routes("a"))
    bench.routes._looks = ["a"]
    bench.returned.use("b")
    assert (bench.rebalances, len(bench.steward.delays)) == (1, LOOKS)


def test_a_broker_that_comes_and_goes_is_looked_for_once() -> None:
    """Each return prolongs the search, and none begins another."""
    bench = Bench(Routes("a", "a"))
    bench.steward.waits = True
    for _ in range(3):
        bench.returned.use("b")
    assert (bench.rebalances, len(bench.steward.jobs)) == (3, 1)


class Silence:
    """Name servers that let anyone who asks wait."""

    masters: dict[str, str] = {}  # noqa: RUF012 - no one is connected here

    def __init__(self) -> None:
        self.asked, self.over = Event(), Event()

    def find(self, _topic: str) -> Route:
        """Return what is remembered: nothing."""
        return Route((), ())

    def ask(self, _topic: str) -> Route:
        """Wait."""
        self.asked.set()
        self.over.wait(60)
        raise AWAY


def test_a_member_lives_on_while_a_name_server_does_not_answer() -> None:
    """Its heartbeats and rebalances are done meanwhile, and leaving waits for no name server."""
    routes: Any = Silence()
    window = PrefetchWindow("c", "t", "g", 1, None)  # type: ignore[arg-type]
    part = Part(parse_topic("t", {}, ""), window)
    member = Member(parse_address("rocketmq://localhost", {}), routes, "g", {"t": part}, "app", lambda *_: ())
    member.start()
    try:
        member._returned.use("b")
        assert routes.asked.wait(20)
        alive = Event()
        member.steward.at(0, alive.set)
        assert alive.wait(5)
        member.close()
        assert member._lookout._thread.is_alive(), "it was waited for"
    finally:
        routes.over.set()
        member.close()
