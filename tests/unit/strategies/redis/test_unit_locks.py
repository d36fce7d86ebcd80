"""The locks of a unit, and the alarms of those who lack one, without a server."""

import time

import pytest

from oncemq.errors import RedisRefused, RedisUnavailable
from oncemq.redis.listener import Listener
from oncemq_strategies.redis_lock.release_alarms import Alarms
from oncemq_strategies.redis_lock.unit_locks import Tried, UnitLocks
from oncemq_strategies.redisson.lease_keeper import Keeper


class Ears:
    """A listener whose messages a test sends."""

    def __init__(self):
        self.told = []

    def subscribe(self, _channel, told):
        """Keep whom to tell."""
        self.told.append(told)
        return told

    def unsubscribe(self, subscription):
        """Forget him."""
        self.told.remove(subscription)


class Client:
    """A client that answers as a test says."""

    def __init__(self, answers=()):
        self.answers = [answer if isinstance(answer, RedisRefused) else [answer] for answer in answers]
        self.clustered = True
        self.ears = Ears()
        self._keeper = Keeper(self)

    def before_closing(self, action):
        """Keep what ends the keeper."""
        self.close = action

    def shared(self, kind):
        """Return the one keeper, or the one listener."""
        return {Keeper: self._keeper, Listener: self.ears}[kind]

    def together(self, _calls):
        """Return the answers."""
        return self.answers


@pytest.fixture
def woken():
    """The keys that were woken."""
    return []


def test_what_was_acquired_beside_a_refusal_is_known():
    """Else no one gives it back, and it stands in its own owner's way until its lease ends."""
    client = Client([None, RedisRefused("NOPERM no permission"), None])
    tried = Tried()
    with pytest.raises(RedisRefused, match="NOPERM"):
        UnitLocks(client, lease=None, fenced=False, replicas=0).acquire(["a", "b", "c"], "unit", tried)
    assert set(tried.held) == {"a", "c"}
    client.close()


def test_what_may_have_been_acquired_is_given_back():
    """The first answers were lost, then no one was there: each lock may be ours."""
    client = Client()
    lost, away = RedisUnavailable("cut off", sent=True), RedisUnavailable("no server there")
    rounds = iter([[lost] * 2, [away] * 2])
    client.together = lambda _calls: next(rounds)
    tried = Tried()
    with pytest.raises(RedisUnavailable, match="no server there"):
        UnitLocks(client, lease=None, fenced=False, replicas=0).acquire(["a", "b"], "unit", tried)
    assert set(tried.held) == {"a", "b"}
    client.close()


def test_what_may_have_been_acquired_before_a_refusal_is_given_back():
    """The answer was lost, and the second time Redis refuses: the first may have been carried out."""
    client = Client()
    rounds = iter([[RedisUnavailable("cut off", sent=True)], [RedisRefused("NOPERM")]])
    client.together = lambda _calls: next(rounds)
    tried = Tried()
    with pytest.raises(RedisRefused):
        UnitLocks(client, lease=None, fenced=False, replicas=0).acquire(["a"], "unit", tried)
    assert set(tried.held) == {"a"}
    client.close()


def test_what_was_surely_not_acquired_is_not_given_back():
    """While Redis is away, releases of nothing would be said again for a lease."""
    client = Client()
    lost, away = RedisUnavailable("cut off", sent=True), RedisUnavailable("refused")
    client.together = lambda _calls: [away, lost]
    tried = Tried()
    with pytest.raises(RedisUnavailable, match="refused"):
        UnitLocks(client, lease=None, fenced=False, replicas=0).acquire(["a", "b"], "unit", tried)
    assert set(tried.held) == {"b"}
    client.close()


def test_a_release_before_the_alarm_is_set_is_not_missed(woken):
    """It came after the lock was tried, so the lock may be free."""
    client = Client()
    alarms = Alarms(client)
    alarms.set("lock", "first", woken.append, since=time.monotonic())
    [tell] = client.ears.told
    tried = time.monotonic()
    tell()
    alarms.set("lock", "second", woken.append, since=tried)
    assert woken == ["first", "second"]


def test_a_release_before_the_lock_was_tried_wakes_no_waiter(woken):
    """Anyone who tried after it has seen what it left."""
    client = Client()
    alarms = Alarms(client)
    alarms.set("lock", "first", woken.append, since=time.monotonic())
    client.ears.told[0]()
    alarms.set("lock", "second", woken.append, since=time.monotonic() + 1)
    assert woken == ["first"]
    alarms.clear("lock")
    assert len(client.ears.told) == 1
    client.ears.told[0]()
    assert woken == ["first", "second"]
    alarms.clear("lock")
    assert client.ears.told == []
