"""The connection's thread: how long it pauses between its tries."""

from typing import Any, cast

from oncemq_adapters.rabbitmq.connection.address import parse_address
from oncemq_adapters.rabbitmq.connection.link import Link


def test_pauses_stay_short_however_long_the_broker_is_away() -> None:
    """Effects come within ten seconds after the broker is back: a pause, a connection and a subscription."""
    link = Link(parse_address("amqp://localhost", {}), "tests", cast("Any", None))
    assert all(link.pause_after(failures) <= 5 for failures in range(1000))
