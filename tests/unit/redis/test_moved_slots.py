"""Slots that have moved: the map is asked for once, however many calls found that out."""

import pytest

from oncemq.errors import RedisRefused, RedisUnavailable
from oncemq.redis import RedisClient
from oncemq.redis.call import Call
from oncemq.redis.routes import Routes, slot_of


class ResponseError(Exception):
    """What clients call an answer that is an error."""


class MovedError(ResponseError):
    """The slot lives elsewhere."""

    host, port = "new", 1


class Connection:
    """Answers every command of one talk."""

    def __init__(self, moved):
        self._moved = moved

    def send_packed_command(self, _command):
        """Take it."""

    def read_response(self):
        """Return an answer."""
        if self._moved:
            raise MovedError("1 new:1")
        return b"OK"


class Moving(Routes):
    """Two places; until the map is asked for again, all keys seem to be at the first one."""

    clustered = True

    def __init__(self, known=("old:1", "new:1"), up_to_date=1):
        self.refreshed = 0
        self._known = known
        self._up_to_date = up_to_date

    def place(self, slot):
        """Return where the map says."""
        return "new:1" if self.refreshed >= self._up_to_date else "old:1"

    def masters(self):
        """Return those that the map shows."""
        return self._known

    def borrow(self, place):
        """Return a connection."""
        return Connection(place == "old:1")

    def give_back(self, place, connection):
        """Take it."""

    def own(self, place):
        """Return a connection."""
        return self.borrow(place)

    def close(self):
        """Do nothing."""

    def refresh(self):
        """Count."""
        self.refreshed += 1


def test_the_map_is_asked_for_once():
    """Each look costs a round trip to a node, and a unit may have hundreds of keys."""
    routes = Moving()
    client = RedisClient(lambda: routes)
    assert client.together([Call(str(n), ("SET", str(n), "1")) for n in range(50)]) == [b"OK"] * 50
    assert routes.refreshed == 1


def test_a_place_that_the_server_names_needs_no_map():
    """The node that was asked for the map may not have heard for a long time that the slot has moved."""
    client = RedisClient(lambda: Moving(up_to_date=1000))
    assert client.together([Call("a", ("SET", "a", "1"))]) == [b"OK"]
    assert client.command("SET", "a", "1", key="a") == b"OK"


def test_a_place_that_no_map_shows_is_waited_for():
    """Without its pool nothing can be sent there."""
    routes = Moving(known=("old:1",), up_to_date=3)
    assert RedisClient(lambda: routes).together([Call("a", ("SET", "a", "1"))]) == [b"OK"]
    assert routes.refreshed == 3


def test_a_named_place_is_asked_once():
    """What it says next counts: the slot may have come back."""
    call, routes = Call("a", ("SET", "a", "1")), Moving(up_to_date=1000)
    client = RedisClient(lambda: routes)
    client.together([call])
    assert call.moved_to is None


@pytest.mark.parametrize("loss", [RedisUnavailable("no server is known"), RedisRefused("NOAUTH")])
def test_what_has_its_answer_keeps_it_when_the_map_is_lost_meanwhile(loss):
    """A lock that one server gave would be held by no one otherwise."""
    routes = Moving(known=("old:1",), up_to_date=1000)
    by_key = {slot_of("a"): "new:1"}

    def place(slot):
        if slot in by_key:
            return by_key[slot]
        if routes.refreshed:
            raise loss
        return "old:1"

    routes.place = place
    first, second = RedisClient(lambda: routes).together(
        [Call("a", ("SET", "a", "1")), Call("b", ("SET", "b", "1"))]
    )
    assert first == b"OK"
    assert second is loss
