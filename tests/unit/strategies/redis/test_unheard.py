"""Releases that Redis did not hear, without a server."""

import math
import time

import pytest

from oncemq.errors import RedisUnavailable
from oncemq.redis.call import Call
from oncemq_strategies.redisson.pending_releases import Release, Unheard

FIRST, SECOND = Call("a", ("DEL", "a")), Call("b", ("DEL", "b"))


class Client:
    """A client that answers as a test says."""

    def __init__(self, *answers):
        self.answers = answers

    def together(self, calls):
        """Return the answers."""
        assert len(calls) == len(self.answers)
        return self.answers


@pytest.fixture
def releases():
    """Two, with time left."""
    return [Release(call, time.monotonic() + 60) for call in (FIRST, SECOND)]


def test_what_was_heard_is_not_said_again(releases):
    """Also when the lock was not held: there is nothing left to do."""
    assert Unheard(Client(1, RedisUnavailable("away"))).say(releases) == [releases[1]]
    assert Unheard(Client(1, None)).say(releases) == []


def test_it_is_said_again_in_a_while(releases):
    """Not at once; and anyone who takes it has it alone."""
    unheard = Unheard(Client())
    assert unheard.due_at == math.inf
    unheard.add(releases)
    assert unheard.take(time.monotonic()) == []
    assert unheard.take(unheard.due_at) == releases
    assert unheard.take(math.inf) == []
    assert unheard.due_at == math.inf


def test_ended_locks_are_forgotten(releases):
    """Their leases have ended: there is nothing left to release."""
    unheard = Unheard(Client())
    unheard.add([releases[0], Release(SECOND, time.monotonic())])
    assert unheard.take(unheard.due_at) == [releases[0]]


def test_nothing_to_say_is_never_due():
    """The thread that says it is not woken for nothing."""
    unheard = Unheard(Client())
    unheard.add([])
    assert unheard.due_at == math.inf
