"""Fair, fenced and multiple locks on real servers."""

import threading
from datetime import timedelta

import pytest

from oncemq_strategies.redisson import FairLock, FencedLock, Lock, MultiLock, NotHeld, lock
from oncemq_strategies.redisson.names import queue_of
from oncemq_strategies.redisson.survey.locks import force_release
from services.waiting import wait_until

NOT_AT_ALL = timedelta(0)
QUEUE, TIMES = "redisson_lock_queue:{%s}", "redisson_lock_timeout:{%s}"


def waiting(client, name):
    """Return how many stand in a fair lock's queue."""
    return client.command("LLEN", QUEUE % name, key=QUEUE % name)


def test_a_fair_lock_is_given_in_the_order_of_asking(make, fresh):
    """Four waiters of four clients, one after the other."""
    first, order, threads = FairLock(make(), fresh), [], []
    assert first.acquire(NOT_AT_ALL)

    def ask(number, client):
        with FairLock(client, fresh):
            order.append(number)

    for number in range(4):
        client = make()
        threads.append(threading.Thread(target=ask, args=(number, client)))
        threads[-1].start()
        assert wait_until(lambda client=client, n=number: waiting(client, fresh) == n + 1, seconds=5)
    first.release()
    for thread in threads:
        thread.join(20)
    assert order == [0, 1, 2, 3]
    assert waiting(first._client, fresh) == 0


def test_who_gives_up_leaves_the_queue(client, rival, fresh):
    """No one waits behind one that is gone."""
    with FairLock(client, fresh):
        assert not FairLock(rival, fresh).acquire(timedelta(milliseconds=200))
        assert waiting(client, fresh) == 0
        assert client.command("ZCARD", TIMES % fresh, key=TIMES % fresh) == 0


def test_who_fails_while_waiting_leaves_the_queue(client, rival, fresh, monkeypatch):
    """Whatever ends the waiting."""

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("oncemq_strategies.redisson.waiters.Waiter.wait", interrupt)
    with FairLock(client, fresh):
        with pytest.raises(KeyboardInterrupt):
            FairLock(rival, fresh).acquire()
        assert waiting(client, fresh) == 0


def test_a_fair_lock_that_is_free_goes_to_the_head_of_the_queue(client, rival, fresh):
    """Someone stands there already: who comes later does not overtake."""
    client.command("RPUSH", QUEUE % fresh, "another:1", key=QUEUE % fresh)
    client.command("ZADD", TIMES % fresh, "99999999999999", "another:1", key=TIMES % fresh)
    assert not FairLock(rival, fresh).acquire(NOT_AT_ALL)
    client.command("DEL", QUEUE % fresh, TIMES % fresh, key=QUEUE % fresh)


def test_who_heads_the_queue_is_woken_by_a_forced_release(client, rival, fresh, monkeypatch):
    """By its own channel, which is the only one that it listens to."""
    monkeypatch.setattr(lock, "_POLL", 60)
    assert FairLock(client, fresh).acquire(NOT_AT_ALL)
    got = threading.Event()

    def wait():
        with FairLock(rival, fresh):
            got.set()

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    queue = queue_of(fresh)
    assert wait_until(lambda: client.command("LLEN", queue, key=queue) == 1, seconds=10)
    assert force_release(client, fresh)
    assert got.wait(10)
    waiter.join(10)


def test_a_dead_head_is_removed_when_its_time_has_passed(client, fresh):
    """It may have died long ago."""
    client.command("RPUSH", QUEUE % fresh, "dead:1", key=QUEUE % fresh)
    client.command("ZADD", TIMES % fresh, "1", "dead:1", key=TIMES % fresh)
    with FairLock(client, fresh) as lock:
        assert lock.owned()
    assert waiting(client, fresh) == 0


def test_a_fair_lock_is_reentrant_and_refuses_strangers(client, rival, fresh):
    """As the plain one; an expired one is not released as if it were ours."""
    lock = FairLock(client, fresh)
    with lock, lock, pytest.raises(NotHeld):
        FairLock(rival, fresh).release()
    assert not lock.locked()
    assert lock.acquire(NOT_AT_ALL)
    client.command("DEL", fresh, key=fresh)
    with pytest.raises(NotHeld):
        lock.release()


def test_tokens_rise_with_every_acquisition(client, rival, fresh):
    """Also with re-entry, and anyone who acquires."""
    tokens = []
    for opened in (client, rival, client):
        with FencedLock(opened, fresh) as lock:
            tokens.append(lock.token)
            with lock:
                tokens.append(lock.token)
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 6


def test_who_does_not_hold_a_fenced_lock_has_no_token(client, fresh):
    """Nor who lost it."""
    lock = FencedLock(client, fresh, lease=timedelta(milliseconds=50))
    with pytest.raises(NotHeld):
        _ = lock.token
    assert lock.acquire(NOT_AT_ALL)
    assert wait_until(lambda: not lock.owned(), seconds=2)
    with pytest.raises(NotHeld):
        _ = lock.token


def test_a_multilock_is_all_or_none(client, rival, fresh):
    """One that is taken leaves the others free."""
    names = [f"{fresh}-{n}" for n in (3, 1, 2)]
    many = MultiLock(*(Lock(client, name) for name in names))
    with Lock(rival, names[0]):
        assert not many.acquire(NOT_AT_ALL)
        assert not many.acquire(timedelta(milliseconds=200))
        assert not Lock(client, names[1]).locked()
        assert not Lock(client, names[2]).locked()
    with many:
        assert many.owned()
        assert all(not Lock(rival, name).acquire(NOT_AT_ALL) for name in names)
    assert not many.locked()


def test_multilocks_of_opposite_order_never_wait_for_each_other(make, fresh):
    """Both come through, many times."""
    turns = []

    def work(client, names):
        for _ in range(10):
            with MultiLock(*(Lock(client, name) for name in names)):
                turns.append(1)

    names = [f"{fresh}-a", f"{fresh}-b"]
    threads = [threading.Thread(target=work, args=(make(), order)) for order in (names, names[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(turns) == 20


def test_a_multilock_needs_different_locks(client, fresh):
    """One lock twice would be a hold that no one releases."""
    with pytest.raises(ValueError, match="name of its own"):
        MultiLock(Lock(client, fresh), Lock(client, fresh))
