"""Semaphores shared with the real Redisson: numbers, permits, waking up and deaths, from either side."""

import threading
import time
from datetime import timedelta

import pytest

from oncemq_strategies.redisson import ExpirableSemaphore, NotHeld, Semaphore
from services.waiting import wait_until

NOT_AT_ALL = timedelta(0)
LONG = timedelta(seconds=20)


def heard(client, name):
    """Return whether anyone waits for permits."""
    channel = f"redisson_sc:{{{name}}}"
    ways = ("CHANNELS", "SHARDCHANNELS") if client.clustered else ("CHANNELS",)
    return any(client.at(place, "PUBSUB", way, channel) for place in client.routes.masters() for way in ways)


def test_permits_are_one_number_for_both(peer, client, fresh):
    """Set, added, taken, given back and drained by either side."""
    ours = Semaphore(client, fresh)
    assert peer.do("permits", fresh, "set", 3) == "true"
    assert not ours.set_permits(9)
    assert ours.acquire(2)
    assert (ours.available(), peer.do("permits", fresh, "left", 0)) == (1, "1")
    assert peer.do("permits", fresh, "acquire", 2, 0) == "false"
    assert peer.do("permits", fresh, "acquire", 1, 0) == "true"
    assert not ours.acquire(wait=NOT_AT_ALL)
    peer.do("permits", fresh, "release", 1)
    ours.release(2)
    ours.add_permits(2)
    peer.do("permits", fresh, "add", -1)
    assert (ours.available(), peer.do("permits", fresh, "left", 0)) == (4, "4")
    assert (ours.drain(), peer.do("permits", fresh, "drain", 0)) == (4, "0")


def test_each_is_woken_by_the_permits_of_the_other(peer, client, fresh, monkeypatch):
    """Without looking by itself."""
    monkeypatch.setattr("oncemq_strategies.redisson.lock._POLL", 60)
    ours = Semaphore(client, fresh, permits=0)
    assert not ours.set_permits(7)
    asked = peer.ask("permits", fresh, "acquire", 2, 20_000)
    assert wait_until(lambda: heard(client, fresh), seconds=10)
    began = time.monotonic()
    ours.release(2)
    assert asked.result(15) == "true"
    assert time.monotonic() - began < 2
    assert wait_until(lambda: not heard(client, fresh), seconds=10)
    got = []
    threads = [threading.Thread(target=lambda: got.append(ours.acquire(wait=LONG))) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert wait_until(lambda: heard(client, fresh), seconds=10)
    peer.do("permits", fresh, "release", 3)
    for thread in threads:
        thread.join(10)
    assert got == [True] * 3


def test_never_more_at_a_time_than_there_are_permits(peer, client, fresh):
    """Of six owners of both sides that hurry, and in the end all permits are there."""
    ours = Semaphore(client, fresh, permits=2)
    inside, most, mutex = 0, 0, threading.Lock()

    def work(acquire, release) -> None:
        nonlocal inside, most
        for _ in range(8):
            assert acquire()
            with mutex:
                inside += 1
                most = max(most, inside)
            with mutex:
                inside -= 1
            release()

    def java(name):
        return threading.Thread(
            target=work,
            args=(
                lambda: peer.do("permits", fresh, "acquire", 1, 20_000, thread=name) == "true",
                lambda: peer.do("permits", fresh, "release", 1, thread=name),
            ),
        )

    threads = [java(f"j{n}") for n in range(3)]
    threads += [threading.Thread(target=work, args=(ours.acquire, ours.release)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert 0 < most <= 2
    assert ours.available() == 2


def test_permits_that_expire_are_one_number_for_both(peer, client, fresh):
    """Each gives, takes and releases them, also one that the other acquired."""
    ours = ExpirableSemaphore(client, fresh)
    assert peer.do("leases", fresh, "set", 2) == "true"
    mine, theirs = ours.acquire(NOT_AT_ALL), peer.do("leases", fresh, "acquire", 20_000, 0)
    assert (ours.acquire(NOT_AT_ALL), peer.do("leases", fresh, "acquire", 20_000, 0)) == (None, "null")
    assert (ours.available(), peer.do("leases", fresh, "left")) == (0, "0")
    assert peer.do("leases", fresh, "extend", mine.id, 60_000) == "true"
    assert peer.do("leases", fresh, "release", mine.id) == "true"
    with pytest.raises(NotHeld):
        mine.release()
    ours.release(theirs)
    assert peer.do("leases", fresh, "release", theirs) == "false"
    assert (ours.available(), peer.do("leases", fresh, "left")) == (2, "2")


def test_each_is_woken_by_a_permit_that_the_other_releases(peer, client, fresh, monkeypatch):
    """Without looking by itself."""
    monkeypatch.setattr("oncemq_strategies.redisson.lock._POLL", 60)
    ours = ExpirableSemaphore(client, fresh, permits=1)
    permit = ours.acquire()
    asked = peer.ask("leases", fresh, "acquire", 60_000, 20_000)
    assert wait_until(lambda: heard(client, fresh), seconds=10)
    permit.release()
    theirs = asked.result(10)
    got = []
    thread = threading.Thread(target=lambda: got.append(ours.acquire(LONG)))
    thread.start()
    assert wait_until(lambda: heard(client, fresh), seconds=10)
    assert peer.do("leases", fresh, "release", theirs) == "true"
    thread.join(10)
    assert got[0].owned()
    got[0].release()


def test_a_permit_whose_lease_ended_goes_to_the_other(peer, client, fresh):
    """By itself; who had it cannot release it any more."""
    ours = ExpirableSemaphore(client, fresh, permits=1, lease=timedelta(milliseconds=300))
    late = ours.acquire()
    theirs = peer.do("leases", fresh, "acquire", 300, 10_000)
    assert len(theirs) == 32
    with pytest.raises(NotHeld):
        late.release()
    assert ours.acquire(LONG)
    assert peer.do("leases", fresh, "release", theirs) == "false"


def test_a_permit_that_is_renewed_outlives_its_lease(peer, client, fresh, monkeypatch):
    """As long as its process lives."""
    monkeypatch.setattr("oncemq_strategies.redisson.semaphores.expirable.LEASE", timedelta(milliseconds=400))
    with ExpirableSemaphore(client, fresh, permits=1) as permit:
        assert peer.do("leases", fresh, "acquire", 1000, 1500) == "null"
        assert permit.owned()
    assert len(peer.do("leases", fresh, "acquire", 1000, 0)) == 32
