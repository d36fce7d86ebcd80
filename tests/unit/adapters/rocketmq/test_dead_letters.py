"""Where dead letters are looked for, without a broker."""

from types import SimpleNamespace
from typing import Any

import pytest

from oncemq_adapters.rocketmq.remoting.dead_letters import DeadLetters
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.connections import Route
from oncemq_adapters.rocketmq_client.errors import Denied
from oncemq_adapters.rocketmq_client.protocol import Outgoing

PLACES = (("broker", 0),)


class Slow:
    """A name server that hears of a topic late."""

    def __init__(self, *, late: int) -> None:
        self._late = late
        self.asked = 0

    def ask(self, _topic: str) -> Route:
        """Return where the topic is, once it is known."""
        self.asked += 1
        if self.asked <= self._late:
            raise Denied("names:9876", codes.NO_TOPIC, "no such topic", {})
        return Route(PLACES, PLACES)


def graveyard(routes: Slow, *, buried: set[str]) -> DeadLetters:
    """Return one whose brokers are never asked."""
    unused: Any = None
    asked: Any = routes
    producer: Any = SimpleNamespace(buried=buried)
    return DeadLetters(asked, unused, producer, "points")


def test_a_letter_of_our_own_is_found_before_the_name_servers_know_its_topic() -> None:
    """A broker confirms it first, and tells them of the topic that it has made for it afterwards."""
    assert graveyard(Slow(late=3), buried={"%RETRY%points"})._places() == PLACES


def test_nothing_waits_for_letters_where_none_was_written() -> None:
    """Most groups have none."""
    routes = Slow(late=3)
    assert not graveyard(routes, buried={"%RETRY%others"})._places()
    assert routes.asked == 1


@pytest.mark.parametrize(("attempts", "most", "dies"), [(3, 16, False), (16, 16, True), (3, None, False)])
def test_what_has_used_up_its_attempts_becomes_a_letter(attempts: int, most: int | None, dies: bool) -> None:
    """The broker counts as we do."""
    assert Outgoing("%RETRY%points", b"x", {}, attempts=attempts, most_attempts=most).dies is dies
