"""Many locks by one script: what Redis says of one of them is about that one alone."""

from datetime import timedelta

import pytest

from oncemq.errors import RedisRefused
from oncemq_strategies.redis_lock.unit_locks import SHARE, Tried, UnitLocks
from oncemq_strategies.redisson import FencedLock
from oncemq_strategies.redisson.names import token_of


@pytest.fixture
def names(fresh):
    """Return names of locks, more than one script is given."""
    return [f"{fresh}-{number}" for number in range(2 * SHARE + 5)]


@pytest.fixture(params=[False, True], ids=["plain", "fenced"])
def locks(client, request):
    """Return the locks of units."""
    return UnitLocks(client, lease=None, fenced=request.param, replicas=0)


def _exist(client, names):
    return [client.command("EXISTS", name, key=name) for name in names]


def test_many_locks_are_acquired_and_released(client, locks, names):
    """Each by its name, no matter who is next to it."""
    tried = Tried()
    locks.acquire(names, "unit", tried)
    assert list(tried.held) == names
    assert _exist(client, names) == [1] * len(names)
    locks.release(tried.held.values())
    assert _exist(client, names) == [0] * len(names)


def test_of_many_locks_those_of_others_are_told(locks, names):
    """With the time for which they have them."""
    first, second = Tried(), Tried()
    locks.acquire(names[::7], "first", first)
    locks.acquire(names, "second", second)
    assert set(second.taken) == set(names[::7])
    assert all(0 < left <= 30_000 for left in second.taken.values())
    assert set(second.held) == set(names) - set(names[::7])


def test_what_is_no_lock_is_refused_alone(client, locks, names):
    """Its neighbours are acquired."""
    client.command("SET", names[3], "text", key=names[3])
    tried = Tried()
    locks.acquire(names, "unit", tried)
    assert list(tried.refused) == [names[3]]
    assert "WRONGTYPE" in tried.refused[names[3]]
    assert len(tried.held) == len(names) - 1


def test_a_lock_that_cannot_be_numbered_stays_free(client, names):
    """Else it would be no one's until its lease ends."""
    token = token_of(names[3])
    client.command("RPUSH", token, "text", key=token)
    tried = Tried()
    UnitLocks(client, lease=None, fenced=True, replicas=0).acquire(names[:5], "unit", tried)
    assert list(tried.refused) == [names[3]]
    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        FencedLock(client, names[3]).acquire(timedelta(0))
    assert _exist(client, names[:5]) == [1, 1, 1, 0, 1]


def test_what_is_a_lock_no_more_keeps_no_other_from_being_released(client, locks, names):
    """Redis' words about it are raised afterwards."""
    tried = Tried()
    locks.acquire(names, "unit", tried)
    client.command("SET", names[3], "text", key=names[3])
    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        locks.release(tried.held.values())
    assert _exist(client, names) == [int(name == names[3]) for name in names]


def test_what_was_lost_keeps_no_other_from_being_released(client, locks, names):
    """No one is told: the unit was, when it was lost."""
    tried = Tried()
    locks.acquire(names, "unit", tried)
    client.command("DEL", names[3], key=names[3])
    locks.release(tried.held.values())
    assert _exist(client, names) == [0] * len(names)
