"""Routes outlive no one who asks them."""

from typing import Any

import pytest

from oncemq_adapters.rocketmq.address import parse_address
from oncemq_adapters.rocketmq_client.connections import routes as module
from oncemq_adapters.rocketmq_client.connections.routes import Routes
from oncemq_adapters.rocketmq_client.errors import RocketMQUnavailable


def test_closed_routes_leave_no_connection_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing waits for no one, so a question may still be on its way to a name server."""
    closed: list[bool] = []

    class Connection:
        alive = True

        def __init__(self, *_: Any) -> None:
            routes.close()

        def close(self) -> None:
            closed.append(True)

    monkeypatch.setattr(module, "Connection", Connection)
    routes = Routes(parse_address("rocketmq://localhost", {}))
    with pytest.raises(RocketMQUnavailable):
        routes.ask("orders")
    assert closed == [True]


def queues_of(*brokers: str) -> list[dict[str, object]]:
    """Return the queues that a name server lists for these brokers."""
    return [{"brokerName": name, "perm": 6, "readQueueNums": 1, "writeQueueNums": 1} for name in brokers]


def test_nothing_is_published_to_a_broker_whose_master_is_gone() -> None:
    """Its slave stays in the route, so its queues are read later; a producer of Java's leaves them out, too."""
    routes = Routes(parse_address("rocketmq://localhost", {}))
    brokers = [
        {"brokerName": "a", "brokerAddrs": {"0": "one:1", "1": "two:1"}},
        {"brokerName": "b", "brokerAddrs": {"1": "three:1"}},
    ]
    route = routes._learn({"brokerDatas": brokers, "queueDatas": queues_of("a", "b")})
    assert route.readable == (("a", 0), ("b", 0))
    assert route.writable == (("a", 0),)
    assert set(routes.masters) == {"a"}


def test_without_any_master_the_queues_stay_in_the_route() -> None:
    """A message for them is not refused for want of a queue: the broker is away, and sending is tried again."""
    routes = Routes(parse_address("rocketmq://localhost", {}))
    brokers = [{"brokerName": "b", "brokerAddrs": {"1": "three:1"}}]
    route = routes._learn({"brokerDatas": brokers, "queueDatas": queues_of("b")})
    assert route.writable == (("b", 0),)
