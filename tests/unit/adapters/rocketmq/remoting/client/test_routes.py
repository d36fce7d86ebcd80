"""Routes outlive no one who asks them."""

from typing import Any

import pytest

from oncemq.errors import BrokerUnavailable
from oncemq_adapters.rocketmq.address import parse_address
from oncemq_adapters.rocketmq.remoting.client import routes as module
from oncemq_adapters.rocketmq.remoting.client.routes import Routes


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
    with pytest.raises(BrokerUnavailable):
        routes.ask("orders")
    assert closed == [True]
