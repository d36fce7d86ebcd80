"""`ReadWriteLock` on real servers: sharing, exclusion, leases of single readers, losses, and what is refused."""

import threading
import time
from datetime import timedelta

import pytest

from oncemq.errors import RedisUnavailable
from oncemq_strategies.redisson import BadLockName, Lock, NotHeld, ReadLockHeld, ReadWriteLock
from oncemq_strategies.redisson.lease_keeper import Keeper
from services.waiting import wait_until

NOT_AT_ALL = timedelta(0)
SHORT = timedelta(milliseconds=300)


def holds_of(client, name):
    """Return the keys of all readers' holds, without what all begin with."""
    keys = [
        key.decode() for place in client.routes.masters() for key in client.at(place, "KEYS", f"{{{name}}}:*")
    ]
    return sorted(key.removeprefix(f"{{{name}}}:") for key in keys)


def test_a_read_lock_is_redissons_hash_with_a_key_for_each_hold(client, fresh, fields):
    """The mode, a field for each reader, and keys with the reader's lease, which are gone with the last release."""
    lock = ReadWriteLock(client, fresh)
    with lock.read, lock.read:
        owner = lock.read.owner
        assert fields(client, fresh) == {"mode": "read", owner: "2"}
        assert holds_of(client, fresh) == [f"{owner}:rwlock_timeout:{number}" for number in (1, 2)]
    assert (fields(client, fresh), holds_of(client, fresh)) == ({}, [])


def test_a_write_lock_is_redissons_hash(client, fresh, fields):
    """The mode, and the writer."""
    lock = ReadWriteLock(client, fresh)
    with lock.write:
        assert fields(client, fresh) == {"mode": "write", f"{lock.read.owner}:write": "1"}
    assert fields(client, fresh) == {}


def test_readers_share_and_a_writer_waits_for_the_last(client, rival, fresh):
    """As long as anyone reads, no one writes."""
    ours, theirs = ReadWriteLock(client, fresh), ReadWriteLock(rival, fresh)
    assert (ours.read.acquire(NOT_AT_ALL), theirs.read.acquire(NOT_AT_ALL)) == (True, True)
    ours.read.release()
    assert not ours.write.acquire(NOT_AT_ALL)
    theirs.read.release()
    with ours.write:
        assert not theirs.read.acquire(NOT_AT_ALL)


def test_a_reader_that_died_does_not_keep_a_writer_out(client, rival, fresh):
    """Its lease ends for itself, although another reader keeps the lock."""
    living = ReadWriteLock(client, fresh)
    ReadWriteLock(rival, fresh, lease=SHORT).read.acquire()
    living.read.acquire()
    assert wait_until(lambda: len(holds_of(client, fresh)) == 1, seconds=5)
    living.read.release()
    assert living.write.acquire(NOT_AT_ALL)
    living.write.release()


def test_a_reader_that_lives_is_found_by_its_lease(client, rival, fresh):
    """The release of another reader leaves the lock, for as long as the longest lease."""
    ours, theirs = ReadWriteLock(client, fresh), ReadWriteLock(rival, fresh, lease=SHORT * 20)
    ours.read.acquire()
    theirs.read.acquire()
    ours.read.release()
    assert NOT_AT_ALL < theirs.read.remaining() <= SHORT * 20
    assert not ours.write.acquire(NOT_AT_ALL)
    theirs.read.release()


def test_a_reader_is_renewed_with_each_of_its_holds(client, fresh, monkeypatch):
    """Hash and keys outlive their lease as long as their process lives."""
    monkeypatch.setattr("oncemq_strategies.redisson.lock.LEASE", SHORT)
    lock = ReadWriteLock(client, fresh)
    with lock.read, lock.read:
        until = time.monotonic() + 3 * SHORT.total_seconds()
        while time.monotonic() < until:
            assert len(holds_of(client, fresh)) == 2
        assert lock.read.owned()


def test_a_lock_that_was_deleted_is_lost(client, fresh):
    """Its holder is told, and the release is refused, for both locks."""
    for kind in ("read", "write"):
        told = threading.Event()
        lock = getattr(ReadWriteLock(client, fresh, lease=SHORT, on_loss=told.set), kind)
        lock.acquire()
        client.command("DEL", fresh, key=fresh)
        assert told.wait(5)
        with pytest.raises(NotHeld):
            lock.release()


def test_a_writer_whose_lease_ended_releases_nothing_of_its_successor(client, rival, fresh):
    """The reader that came after it keeps its lock."""
    late, successor = ReadWriteLock(client, fresh, lease=SHORT), ReadWriteLock(rival, fresh)
    late.write.acquire()
    assert successor.read.acquire(timedelta(seconds=5))
    with pytest.raises(NotHeld):
        late.write.release()
    assert (successor.read.hold_count(), successor.read.locked()) == (1, True)
    successor.read.release()


def test_a_reader_that_wants_to_write_is_told_that_it_would_wait_for_itself(client, fresh):
    """At once instead of never; it still reads."""
    lock = ReadWriteLock(client, fresh)
    with lock.read:
        assert not lock.write.acquire(NOT_AT_ALL)
        with pytest.raises(ReadLockHeld, match="wait for itself"):
            lock.write.acquire()
        assert lock.read.hold_count() == 1


def test_a_plain_lock_of_the_same_name_is_respected(client, rival, fresh, fields):
    """It is neither overwritten nor waited for."""
    with Lock(rival, fresh) as plain:
        for lock in (ReadWriteLock(client, fresh).read, ReadWriteLock(client, fresh).write):
            with pytest.raises(BadLockName, match="another kind"):
                lock.acquire(NOT_AT_ALL)
        assert fields(client, fresh) == {plain.owner: "1"}


@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_lost_answer_counts_once(client, fresh, monkeypatch, kind):
    """Each command is repeated when its answer was lost: acquired twice is held once, and released twice is released."""
    lock = getattr(ReadWriteLock(client, fresh), kind)
    call, lose = client.call, [True]

    def lossy(made):
        answer = call(made)
        if lose[0]:
            lose[0] = False
            raise RedisUnavailable("lost", sent=True)
        return answer

    monkeypatch.setattr(client, "call", lossy)
    for holds in (1, 2):
        lose[0] = True
        assert lock.acquire(NOT_AT_ALL)
        assert lock.hold_count() == holds
    for holds in (1, 0):
        lose[0] = True
        lock.release()
        assert lock.hold_count() == holds
    assert holds_of(client, fresh) == []
    assert client.shared(Keeper).find(fresh, lock.owner) is None


def test_a_writer_that_reads_lets_readers_in_when_it_stops_to_write(client, rival, fresh, monkeypatch):
    """They are woken, and need not look by themselves."""
    monkeypatch.setattr("oncemq_strategies.redisson.lock._POLL", 60)
    lock, got = ReadWriteLock(client, fresh), threading.Event()

    def read():
        with ReadWriteLock(rival, fresh).read:
            got.set()

    lock.write.acquire()
    lock.read.acquire()
    thread = threading.Thread(target=read)
    thread.start()
    channel = f"redisson_rwlock:{{{fresh}}}"
    ways = ("CHANNELS", "SHARDCHANNELS") if client.clustered else ("CHANNELS",)
    assert wait_until(
        lambda: any(
            client.at(place, "PUBSUB", way, channel) for place in client.routes.masters() for way in ways
        ),
        seconds=5,
    )
    lock.write.release()
    assert got.wait(5)
    lock.read.release()
    thread.join(5)
