"""Locks shared with the real Redisson: exclusion, waking up, renewals, deaths, order and tokens, from either side."""

import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest

from interop.redisson import VERSIONS, WATCHDOG_MS, Peer
from oncemq_strategies.redisson import FairLock, FencedLock, Lock, MultiLock, NotHeld
from services.waiting import wait_until

NOT_AT_ALL = timedelta(0)
LONG = timedelta(seconds=10)


def in_thread(work) -> threading.Thread:
    """Do `work` beside the test."""
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def queued(client, name):
    """Return how many wait for a fair lock."""
    queue = f"redisson_lock_queue:{{{name}}}"
    return client.command("LLEN", queue, key=queue)


def listeners(client, name):
    """Return how many subscriptions wait for a lock, of either kind."""
    channel = f"redisson_lock__channel:{{{name}}}*"
    places = client.routes.masters()
    ways = ("CHANNELS", "SHARDCHANNELS") if client.clustered else ("CHANNELS",)
    return sum(len(client.at(place, "PUBSUB", way, channel)) for place in places for way in ways)


@pytest.mark.parametrize(("kind", "ours"), [("plain", Lock), ("fair", FairLock), ("fenced", FencedLock)])
def test_each_excludes_the_other(peer, client, fresh, kind, ours):
    """What one has, the other has not; and what it gives back, the other gets."""
    lock = ours(client, fresh)
    assert lock.acquire(NOT_AT_ALL)
    assert (lock.hold_count(), lock.remaining() > NOT_AT_ALL) == (1, True)
    assert peer.do("lock", kind, fresh, 0, -1) == "false"
    assert peer.do("locked", kind, fresh) == "true"
    lock.release()
    assert peer.do("lock", kind, fresh, 0, -1) == "true"
    assert (lock.hold_count(), lock.remaining() > NOT_AT_ALL) == (0, True)
    assert not lock.acquire(NOT_AT_ALL)
    assert peer.do("unlock", kind, fresh) == "true"
    assert lock.acquire(NOT_AT_ALL)
    lock.release()


@pytest.mark.parametrize("kind", ["plain", "fair"])
def test_java_is_woken_by_python(peer, client, fresh, kind):
    """The message reaches it; it does not have to wait for the lease."""
    lock = (FairLock if kind == "fair" else Lock)(client, fresh)
    assert lock.acquire(NOT_AT_ALL)
    waiting = peer.ask("lock", kind, fresh, 20_000, -1)
    assert wait_until(lambda: listeners(client, fresh), seconds=10)
    assert not waiting.done()
    released = time.monotonic()
    lock.release()
    assert waiting.result(15) == "true"
    assert time.monotonic() - released < 1
    peer.do("unlock", kind, fresh)


@pytest.mark.parametrize("kind", ["plain", "fair"])
def test_python_is_woken_by_java(peer, client, fresh, kind):
    """And long before it would have looked by itself."""
    assert peer.do("lock", kind, fresh, 0, -1) == "true"
    woken: list[float] = []

    def wait() -> None:
        with (FairLock if kind == "fair" else Lock)(client, fresh):
            woken.append(time.monotonic())

    thread = in_thread(wait)
    assert wait_until(lambda: listeners(client, fresh), seconds=10)
    released = time.monotonic()
    assert peer.do("unlock", kind, fresh) == "true"
    thread.join(10)
    assert woken[0] - released < 1


def test_re_entry_is_counted_alike(peer, client, fresh):
    """Java sees nothing of ours, and needs as many unlocks for its own."""
    with Lock(client, fresh) as lock, lock:
        assert (lock.hold_count(), peer.do("holds", "plain", fresh)) == (2, "0")
    for _ in range(2):
        assert peer.do("lock", "plain", fresh, 0, -1) == "true"
    assert (lock.hold_count(), peer.do("holds", "plain", fresh)) == (0, "2")
    peer.do("unlock", "plain", fresh)
    assert not lock.acquire(NOT_AT_ALL)
    peer.do("unlock", "plain", fresh)
    assert lock.acquire(NOT_AT_ALL)
    lock.release()


def test_both_see_when_a_lease_ends(peer, client, fresh):
    """Of a lock that either side holds, and that it is free."""
    lock = Lock(client, fresh, lease=LONG)
    assert (lock.remaining(), peer.do("remaining", "plain", fresh)) == (None, "-2")
    with lock:
        ours, java = lock.remaining(), timedelta(milliseconds=int(peer.do("remaining", "plain", fresh)))
        assert LONG >= ours >= java > LONG / 2
    assert peer.do("lock", "plain", fresh, 0, 20_000) == "true"
    assert 2 * LONG >= lock.remaining() > LONG
    peer.do("unlock", "plain", fresh)


def test_a_foreign_unlock_is_refused(peer, client, fresh):
    """On both sides, and the lock stays."""
    with Lock(client, fresh) as lock:
        assert "IllegalMonitorState" in peer.do("unlock", "plain", fresh)
        assert lock.owned()
        assert lock.locked()
    assert peer.do("lock", "plain", fresh, 0, -1) == "true"
    with pytest.raises(NotHeld):
        Lock(client, fresh).release()
    assert peer.do("locked", "plain", fresh) == "true"
    peer.do("unlock", "plain", fresh)


def test_both_watchdogs_renew(peer, client, fresh, monkeypatch):
    """A lock is held for longer than its lease, no matter who has it."""
    monkeypatch.setattr("oncemq_strategies.redisson.lock.LEASE", timedelta(milliseconds=600))
    theirs = f"{fresh}-java"
    assert peer.do("lock", "plain", theirs, 0, -1) == "true"
    with Lock(client, fresh):
        assert peer.do("lock", "plain", fresh, 1500, -1) == "false"
        assert not Lock(client, theirs).acquire(timedelta(milliseconds=WATCHDOG_MS + 500))
    peer.do("unlock", "plain", theirs)


def test_tokens_rise_across_both(peer, client, fresh):
    """Every acquisition has a higher one than all before it."""
    tokens = []
    for _ in range(3):
        with FencedLock(client, fresh) as lock:
            tokens.append(lock.token)
        tokens.append(int(peer.do("token", fresh)))
        peer.do("unlock", "fenced", fresh)
    assert tokens == sorted(set(tokens))
    assert tokens[0] > 0


def test_a_fair_lock_goes_round_in_the_order_of_asking(peer, client, fresh):
    """Java and Python stand in one queue."""
    order: list[str] = []
    first = FairLock(client, fresh)
    assert first.acquire(NOT_AT_ALL)

    def python(name: str) -> None:
        with FairLock(client, fresh):
            order.append(name)

    def java(name: str) -> None:
        if peer.do("lock", "fair", fresh, 20_000, -1, thread=name) == "true":
            order.append(name)
            peer.do("unlock", "fair", fresh, thread=name)

    threads = []
    for number, (name, work) in enumerate([("j1", java), ("p1", python), ("j2", java), ("p2", python)], 1):
        threads.append(in_thread(lambda work=work, name=name: work(name)))
        assert wait_until(lambda number=number: queued(client, fresh) == number, seconds=5)
    first.release()
    for thread in threads:
        thread.join(20)
    assert order == ["j1", "p1", "j2", "p2"]
    assert queued(client, fresh) == 0


def test_a_multilock_of_either_side_excludes_the_other(peer, client, fresh):
    """They are the same plain locks."""
    names = [f"{fresh}-{number}" for number in range(3)]
    ours = MultiLock(*(Lock(client, name) for name in names))
    with ours:
        assert peer.do("lock", "multi", ",".join(names), 0, -1) == "false"
    assert peer.do("lock", "multi", ",".join(names), 1000, -1) == "true"
    assert not ours.acquire(NOT_AT_ALL)
    peer.do("unlock", "multi", ",".join(names))
    assert ours.acquire(LONG)
    ours.release()


def test_a_counter_that_both_increment_misses_nothing(peer, client, fresh):
    """Reading, adding and writing under one lock, from six owners."""
    counter = f"{fresh}-counter"

    def python() -> None:
        for _ in range(20):
            with Lock(client, fresh):
                value = int(client.command("GET", counter, key=counter) or 0)
                client.command("SET", counter, value + 1, "EX", 600, key=counter)

    asked = [peer.ask("increment", "plain", fresh, counter, thread=f"t{n % 3}") for n in range(60)]
    threads = [in_thread(python) for _ in range(3)]
    for thread in threads:
        thread.join(30)
    assert {future.result(30) for future in asked} == {"true"}
    assert int(client.command("GET", counter, key=counter)) == 120


def test_the_lock_of_a_killed_java_frees_itself(any_redis_url, client, fresh):
    """Its watchdog dies with it; who waits gets the lock when the lease has ended."""
    with Peer(any_redis_url, VERSIONS[0]) as doomed:
        assert doomed.do("lock", "plain", fresh, 0, -1) == "true"
        doomed.kill()
        assert not Lock(client, fresh).acquire(NOT_AT_ALL)
        assert Lock(client, fresh).acquire(timedelta(milliseconds=WATCHDOG_MS + 2000))


HOLDER = """
import sys, time
from datetime import timedelta
from oncemq_strategies.redisson import lock
lock.LEASE = timedelta(seconds=1)
held = lock.Lock(sys.stdin.readline().strip(), sys.argv[1])
held.acquire()
print("held", flush=True)
time.sleep(60)
"""


def test_the_lock_of_a_killed_python_frees_itself(peer, any_redis_url, fresh):
    """It was renewed until the end, and for no longer."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, fresh], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        holder.stdin.write(any_redis_url + "\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "held\n"
        assert peer.do("lock", "plain", fresh, 1500, -1) == "false"
    finally:
        holder.kill()
        holder.communicate()
    assert peer.do("lock", "plain", fresh, 5000, -1) == "true"
    peer.do("unlock", "plain", fresh)
