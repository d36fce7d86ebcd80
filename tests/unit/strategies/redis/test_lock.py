"""`Lock` on real servers: exclusion, re-entry, leases, losses, and waking up those who wait."""

import math
import threading
import time
from datetime import timedelta

import pytest

from oncemq.errors import RedisUnavailable
from oncemq.redis.connect import make_client
from oncemq_strategies.redisson import BadLockName, Lock, NotHeld, Replicas
from oncemq_strategies.redisson.lease_keeper import Keeper
from services.waiting import wait_until

ON_A_CLUSTER = pytest.mark.parametrize(
    "any_redis_url",
    [pytest.param("redis_cluster_url", marks=pytest.mark.server, id="cluster")],
    indirect=True,
)


NOT_AT_ALL = timedelta(0)
SHORT = timedelta(milliseconds=300)


def ttl(client, name):
    """Return the milliseconds until the lock frees itself."""
    return client.command("PTTL", name, key=name)


def test_a_lock_excludes_others_until_it_is_released(client, rival, fresh):
    """Anyone who is second is told so, and is first afterwards."""
    ours, theirs = Lock(client, fresh), Lock(rival, fresh)
    assert ours.acquire(NOT_AT_ALL)
    assert not theirs.acquire(NOT_AT_ALL)
    assert (ours.owned(), theirs.owned(), theirs.locked()) == (True, False, True)
    ours.release()
    assert theirs.acquire(NOT_AT_ALL)
    theirs.release()
    assert not ours.locked()


def test_a_lock_is_redissons_hash(client, fresh, fields):
    """One field, the owner, with the number of its holds; 30 s of lease."""
    lock = Lock(client, fresh)
    with lock, lock:
        assert fields(client, fresh) == {lock.owner: "2"}
        assert 25_000 < ttl(client, fresh) <= 30_000
    assert fields(client, fresh) == {}


def test_as_many_releases_as_acquisitions_free_it(client, rival, fresh):
    """A lock may be acquired again by its owner, also by another object of the same thread."""
    first, second = Lock(client, fresh), Lock(client, fresh)
    assert first.acquire(NOT_AT_ALL)
    assert second.acquire(NOT_AT_ALL)
    second.release()
    assert not Lock(rival, fresh).acquire(NOT_AT_ALL)
    first.release()
    assert not first.locked()


def test_holds_and_lease_are_those_that_redis_has(client, fresh):
    """Also where another has made the lock endless, or deleted it."""
    lock = Lock(client, fresh, lease=SHORT * 100)
    lock.acquire()
    client.command("PERSIST", fresh, key=fresh)
    assert (lock.hold_count(), lock.remaining()) == (1, timedelta.max)
    client.command("DEL", fresh, key=fresh)
    assert (lock.hold_count(), lock.remaining()) == (0, None)
    with pytest.raises(NotHeld):
        lock.release()


def test_re_entry_never_shortens_the_lease(client, fresh):
    """The longer one holds."""
    with Lock(client, fresh, lease=timedelta(seconds=60)):
        with Lock(client, fresh, lease=timedelta(seconds=5)):
            assert ttl(client, fresh) > 50_000
        assert ttl(client, fresh) > 50_000


def test_another_thread_is_another_owner(client, fresh):
    """It neither holds the lock nor can release it."""
    lock, seen = Lock(client, fresh), []
    with lock:

        def other():
            seen.append(lock.acquire(NOT_AT_ALL))
            with pytest.raises(NotHeld):
                lock.release()

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == [False]


def test_releasing_what_another_holds_is_refused(client, rival, fresh):
    """And leaves it locked."""
    with Lock(client, fresh) as lock:
        with pytest.raises(NotHeld):
            Lock(rival, fresh).release()
        assert lock.locked()


def test_a_waiter_is_woken_by_the_release(client, rival, fresh):
    """Long before it would have looked by itself."""
    lock, woken = Lock(client, fresh), []
    assert lock.acquire(NOT_AT_ALL)

    def wait():
        with Lock(rival, fresh):
            woken.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    channel = f"redisson_lock__channel:{{{fresh}}}"
    counts = [("PUBSUB", "NUMSUB", channel)]
    masters = client.routes.masters()
    assert wait_until(
        lambda: sum(client.at(place, *words)[1] for place in masters for words in counts) > 0, seconds=5
    )
    released = time.monotonic()
    lock.release()
    thread.join(5)
    assert 0 <= woken[0] - released < 0.5


def test_waiting_ends_in_time(client, rival, fresh):
    """No one waits longer than was said."""
    with Lock(client, fresh):
        began = time.monotonic()
        assert not Lock(rival, fresh).acquire(SHORT)
        assert 0.25 < time.monotonic() - began < 2


def test_the_end_of_a_lease_wakes_a_waiter(client, rival, fresh):
    """An owner that died sends no message."""
    assert Lock(client, fresh, lease=SHORT).acquire(NOT_AT_ALL)
    assert Lock(rival, fresh).acquire(timedelta(seconds=5))


def test_a_watched_lock_outlives_its_lease(client, rival, fresh, monkeypatch):
    """The watchdog renews it as long as its holder lives."""
    monkeypatch.setattr("oncemq_strategies.redisson.lock.LEASE", timedelta(milliseconds=1500))
    with Lock(client, fresh) as lock:
        assert not Lock(rival, fresh).acquire(timedelta(seconds=4))
        assert lock.owned()


def test_a_lease_of_ones_own_is_not_renewed(client, rival, fresh):
    """It ends when it was said to end, and its holder knows."""
    lock = Lock(client, fresh, lease=SHORT)
    assert lock.acquire(NOT_AT_ALL)
    assert Lock(rival, fresh).acquire(timedelta(seconds=5))
    assert not lock.owned()
    with pytest.raises(NotHeld):
        lock.release()


def test_a_loss_is_told_within_a_renewal_and_a_second(client, fresh, monkeypatch):
    """Someone deleted the lock; its holder's callback is called, and it may not release it as its own."""
    monkeypatch.setattr("oncemq_strategies.redisson.lock.LEASE", timedelta(milliseconds=900))
    told = threading.Event()
    lock = Lock(client, fresh, on_loss=told.set)
    assert lock.acquire(NOT_AT_ALL)
    client.command("DEL", fresh, key=fresh)
    assert told.wait(0.3 + 1)
    assert not lock.owned()
    with pytest.raises(NotHeld):
        lock.release()


def test_a_lock_can_be_had_again_after_a_loss(client, fresh):
    """What was lost is no obstacle once the loss was noticed."""
    lock = Lock(client, fresh)
    assert lock.acquire(NOT_AT_ALL)
    client.command("DEL", fresh, key=fresh)
    with pytest.raises(NotHeld):
        lock.acquire(NOT_AT_ALL)
    with lock:
        assert lock.owned()


def test_leaving_a_lost_lock_is_an_error(client, fresh):
    """Another may have worked under it; but an error from inside is not hidden by it."""
    with pytest.raises(NotHeld), Lock(client, fresh):
        client.command("DEL", fresh, key=fresh)

    def fail_inside():
        with Lock(client, fresh):
            client.command("DEL", fresh, key=fresh)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()


def test_extending_lengthens_and_never_shortens(client, fresh):
    """A lease of one's own may be moved on."""
    with Lock(client, fresh, lease=timedelta(seconds=20)) as lock:
        lock.extend(timedelta(seconds=60))
        assert ttl(client, fresh) > 50_000
        lock.extend(timedelta(seconds=1))
        assert ttl(client, fresh) > 50_000


def test_extending_a_lost_lock_is_refused(client, fresh):
    """It is not acquired by the way."""
    lock = Lock(client, fresh)
    assert lock.acquire(NOT_AT_ALL)
    client.command("DEL", fresh, key=fresh)
    with pytest.raises(NotHeld):
        lock.extend(timedelta(seconds=60))
    assert not lock.locked()


@pytest.mark.parametrize("name", ["plain", "with{tag}", "{tag}", "a b:ü"])
def test_any_sensible_name_can_be_locked(client, fresh, name):
    """Everything that belongs to it lives in its slot."""
    with Lock(client, f"{fresh}{name}") as lock:
        assert lock.locked()
    assert not lock.locked()


@ON_A_CLUSTER
@pytest.mark.parametrize("name", ["a{b", "x{}", "a}b{", "a{}b{c}"])
def test_a_name_that_could_not_be_unlocked_is_refused(client, fresh, name):
    """In a cluster its channel would live elsewhere."""
    with pytest.raises(BadLockName):
        Lock(client, f"{fresh}{name}").acquire(NOT_AT_ALL)


@pytest.mark.parametrize("name", ["", "x" * 600, "nul\0"])
def test_no_name_is_refused(client, name):
    """Before Redis is asked."""
    with pytest.raises(BadLockName):
        Lock(client, name).acquire(NOT_AT_ALL)


def test_replicas_that_do_not_come_refuse_the_lock(client, fresh):
    """It is given back, so that no one must wait for its lease."""
    too_many = Replicas(9, timedelta(milliseconds=50))
    lock = Lock(client, fresh, replicas=too_many)
    with pytest.raises(RedisUnavailable, match="of 9 replicas"):
        lock.acquire(NOT_AT_ALL)
    assert not lock.locked()


def test_replicas_that_come_are_waited_for(redis_cluster_url, fresh):
    """Every master of the cluster has one."""
    client = make_client(redis_cluster_url)
    with Lock(client, fresh, replicas=Replicas(1)) as lock:
        assert lock.owned()
    client.close()


def test_contenders_never_meet(make, fresh):
    """Twenty threads of three processes' clients: one at a time, each gets its turns."""
    clients, inside, met, turns = [make() for _ in range(3)], [], [], []

    def contend(client):
        for _ in range(5):
            with Lock(client, fresh):
                inside.append(1)
                met.append(len(inside))
                inside.pop()
                turns.append(1)

    threads = [threading.Thread(target=contend, args=(clients[n % 3],)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(turns), set(met)) == (100, {1})


def test_locks_one_after_the_other_wake_no_thread(client, fresh, monkeypatch):
    """The watchdog has nothing to do for those that are held for a moment; waking it would cost more than the lock."""
    keeper = client.shared(Keeper)
    with Lock(client, fresh):
        pass
    assert wait_until(lambda: keeper._looks_at < math.inf, seconds=5)
    woken = []
    monkeypatch.setattr(keeper._changed, "notify", lambda: woken.append(1))
    for _ in range(20):
        with Lock(client, fresh):
            pass
    assert woken == []


def test_the_watchdog_wakes_for_a_lease_that_ends_before_it_looks(client, fresh, monkeypatch):
    """Though it was about to sleep for longer, since others were held lately."""
    keeper, told = client.shared(Keeper), threading.Event()
    with Lock(client, fresh):
        pass
    assert wait_until(lambda: keeper._looks_at < math.inf, seconds=5)
    monkeypatch.setattr("oncemq_strategies.redisson.lock.LEASE", SHORT)
    lock = Lock(client, fresh, on_loss=told.set)
    assert lock.acquire(NOT_AT_ALL)
    client.command("DEL", fresh, key=fresh)
    assert told.wait(SHORT.total_seconds() / 3 + 1)
