"""Errors of RocketMQ's client at the border of the adapters: the framework sees its own."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import AdapterScope, Subscription
from oncemq.errors import BrokerError, BrokerRefused, BrokerUnavailable
from oncemq_adapters.rocketmq import RocketMQAdapter
from oncemq_adapters.rocketmq.errors import as_broker_error, translating
from oncemq_adapters.rocketmq.native import NativeRocketMQAdapter
from oncemq_adapters.rocketmq_client import (
    Denied,
    MalformedFrame,
    RocketMQError,
    RocketMQRefused,
    RocketMQUnavailable,
)

ERRORS = [
    (RocketMQUnavailable("away"), BrokerUnavailable),
    (MalformedFrame("noise"), BrokerUnavailable),
    (RocketMQRefused("too long"), BrokerRefused),
    (Denied("b:1", 16, "no right", {}), BrokerRefused),
]


@pytest.mark.parametrize(("error", "kind"), ERRORS)
def test_an_error_of_the_client_becomes_one_of_the_framework(
    error: RocketMQError, kind: type[BrokerError]
) -> None:
    """It says the same, is worth another try or not, and was caused by the client's."""
    found = as_broker_error(error)
    assert (type(found), str(found), found.__cause__) == (kind, str(error), error)


def test_an_error_of_the_framework_stays_what_it_is() -> None:
    """Adapters refuse some things themselves, and the ledger has errors of its own."""
    error = BrokerRefused("not here")
    assert as_broker_error(error) is error


@translating
class Failing:
    """Raises what the client raises."""

    def ask(self) -> None:
        """Fail at once."""
        raise RocketMQUnavailable("away")

    def each(self) -> Iterator[int]:
        """Fail after the first."""
        yield 1
        raise RocketMQRefused("no more")


def test_methods_and_generators_raise_the_frameworks_errors() -> None:
    """Also where the error comes with the second of many."""
    with pytest.raises(BrokerUnavailable, match="away"):
        Failing().ask()
    found = Failing().each()
    assert next(found) == 1
    with pytest.raises(BrokerRefused, match="no more"):
        next(found)


@pytest.mark.parametrize("kind", [RocketMQAdapter, NativeRocketMQAdapter])
def test_an_adapter_without_servers_is_unavailable(kind: type[RocketMQAdapter]) -> None:
    """Whatever it is asked, the framework can tell that another try may help."""
    adapter = kind.build("rocketmq://127.0.0.1:1", {}, AdapterScope("tests", "rocket", SystemClock()))
    subscription = Subscription("points", "orders", "points", {})
    try:
        for ask in (
            lambda: adapter.prepare([subscription]),
            lambda: adapter.depth(subscription),
            lambda: list(adapter.dead_letters(subscription, 1)),
        ):
            with pytest.raises(BrokerUnavailable):
                ask()
    finally:
        adapter.close(grace=timedelta(seconds=1))
