"""Slots that have moved: the map is asked for once, however many calls found that out."""

from oncemq.redis import RedisClient
from oncemq.redis.call import Call
from oncemq.redis.routes import Routes


class ResponseError(Exception):
    """What clients call an answer that is an error."""


class MovedError(ResponseError):
    """The slot lives elsewhere."""


class Connection:
    """Answers every command of one talk."""

    def __init__(self, moved):
        self._moved = moved

    def send_packed_command(self, _command):
        """Take it."""

    def read_response(self):
        """Return an answer."""
        if self._moved:
            raise MovedError("1 elsewhere:1")
        return b"OK"


class Moving(Routes):
    """Two places; until the map is asked for again, all keys seem to be at the first one."""

    clustered = True

    def __init__(self):
        self.refreshed = 0

    def place(self, slot):
        """Return where the map says."""
        return "new" if self.refreshed else "old"

    def masters(self):
        """Return both."""
        return ["old", "new"]

    def borrow(self, place):
        """Return a connection."""
        return Connection(place == "old")

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
