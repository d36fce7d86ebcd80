"""Publishing: only what a broker has confirmed counts."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from oncemq.errors import BrokerUnavailable
from oncemq_adapters.rocketmq.remoting.outgoing import Outgoing
from oncemq_adapters.rocketmq.remoting.producer import Producer


class Silent:
    """Brokers whose one connection takes everything, answers nothing and is in no list."""

    version = 0

    def get(self, _name: str) -> "Silent":
        """Return the connection."""
        return self

    def alive(self) -> dict[str, Any]:
        """Return none."""
        return {}

    def submit_all(self, _requests: Sequence[Any]) -> None:
        """Take them."""


def test_what_nobody_answered_for_is_not_confirmed() -> None:
    """Whatever became of the connection: the original must not be acknowledged."""
    brokers: Any = Silent()
    unused: Any = None
    producer = Producer(brokers, unused, "g", timedelta(milliseconds=10))
    [error] = producer.send([Outgoing("t", b"x", {}, ("b", 0))])
    assert isinstance(error, BrokerUnavailable)
