"""Read-write locks shared with the real Redisson: exclusion, sharing, downgrades, waking up, renewals and deaths, from either side."""

import threading
import time
from datetime import timedelta

import pytest

from interop.redisson import VERSIONS, WATCHDOG_MS, Peer
from oncemq_strategies.redisson import NotHeld, ReadWriteLock
from services.waiting import wait_until

NOT_AT_ALL = timedelta(0)
LONG = timedelta(seconds=10)


def listeners(client, name):
    """Return how many subscriptions wait for a read-write lock, of either kind."""
    channel = f"redisson_rwlock:{{{name}}}"
    ways = ("CHANNELS", "SHARDCHANNELS") if client.clustered else ("CHANNELS",)
    return sum(
        len(client.at(place, "PUBSUB", way, channel)) for place in client.routes.masters() for way in ways
    )


def waiting(lock, woken):
    """Return a thread that acquires the lock, notes when, and releases it."""

    def wait() -> None:
        with lock:
            woken.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_readers_of_both_sides_share_and_keep_a_writer_out(peer, client, fresh):
    """Whichever reads last lets the writer in, of either side."""
    lock = ReadWriteLock(client, fresh)
    assert lock.read.acquire(NOT_AT_ALL)
    assert peer.do("lock", "read", fresh, 0, -1) == "true"
    assert peer.do("lock", "write", fresh, 0, -1, thread="other") == "false"
    lock.read.release()
    assert not lock.write.acquire(NOT_AT_ALL)
    assert lock.read.acquire(NOT_AT_ALL)
    assert peer.do("unlock", "read", fresh) == "true"
    assert peer.do("lock", "write", fresh, 0, -1) == "false"
    lock.read.release()
    assert peer.do("lock", "write", fresh, 0, -1) == "true"
    peer.do("unlock", "write", fresh)


def test_a_writer_keeps_everyone_of_the_other_side_out(peer, client, fresh):
    """Readers, and other writers."""
    lock = ReadWriteLock(client, fresh)
    with lock.write:
        assert (peer.do("lock", "read", fresh, 0, -1), peer.do("lock", "write", fresh, 0, -1)) == (
            "false",
            "false",
        )
        assert (peer.do("locked", "read", fresh), peer.do("locked", "write", fresh)) == ("false", "true")
    assert peer.do("lock", "write", fresh, 0, -1) == "true"
    assert (lock.read.acquire(NOT_AT_ALL), lock.write.acquire(NOT_AT_ALL)) == (False, False)
    assert (lock.read.locked(), lock.write.locked()) == (False, True)
    assert peer.do("unlock", "write", fresh) == "true"
    assert lock.write.acquire(NOT_AT_ALL)
    lock.write.release()


def test_re_entry_is_counted_alike(peer, client, fresh):
    """Each side needs as many releases as it had acquisitions, as reader and as writer."""
    lock = ReadWriteLock(client, fresh)
    for kind, ours, other in (("read", lock.read, "write"), ("write", lock.write, "read")):
        with ours, ours:
            assert (ours.hold_count(), peer.do("holds", kind, fresh)) == (2, "0")
        for _ in range(2):
            assert peer.do("lock", kind, fresh, 0, -1) == "true"
        assert (ours.hold_count(), peer.do("holds", kind, fresh)) == (0, "2")
        peer.do("unlock", kind, fresh)
        assert not getattr(lock, other if kind == "write" else "write").acquire(NOT_AT_ALL)
        peer.do("unlock", kind, fresh)
        assert lock.write.acquire(NOT_AT_ALL)
        lock.write.release()


def test_a_writer_becomes_a_reader_for_the_other_side(peer, client, fresh):
    """Readers may join it, writers may not, whichever side it is."""
    lock = ReadWriteLock(client, fresh)
    with lock.write:
        lock.read.acquire()
        assert peer.do("lock", "read", fresh, 0, -1) == "false"
    assert (peer.do("lock", "read", fresh, 0, -1), peer.do("locked", "write", fresh)) == ("true", "false")
    peer.do("unlock", "read", fresh)
    assert peer.do("lock", "write", fresh, 0, -1) == "false"
    lock.read.release()
    for kind in ("write", "read"):
        assert peer.do("lock", kind, fresh, 0, -1) == "true"
    assert not lock.read.acquire(NOT_AT_ALL)
    peer.do("unlock", "write", fresh)
    assert lock.read.acquire(NOT_AT_ALL)
    lock.read.release()
    assert not lock.write.acquire(NOT_AT_ALL)
    peer.do("unlock", "read", fresh)
    assert not lock.read.locked()


def test_java_is_woken_by_python(peer, client, fresh):
    """A writer by the last reader, and all readers by the writer, also by one that goes on reading."""
    lock = ReadWriteLock(client, fresh)
    for ours, kind in ((lock.read, "write"), (lock.write, "read")):
        assert ours.acquire(NOT_AT_ALL)
        asked = [
            peer.ask("lock", kind, fresh, 20_000, -1, thread=f"t{number}")
            for number in range(2 if kind == "read" else 1)
        ]
        assert wait_until(lambda: listeners(client, fresh), seconds=10)
        assert not any(answer.done() for answer in asked)
        if ours is lock.write:
            lock.read.acquire()
        released = time.monotonic()
        ours.release()
        assert [answer.result(15) for answer in asked] == ["true"] * len(asked)
        assert time.monotonic() - released < 1
        for number in range(len(asked)):
            assert peer.do("unlock", kind, fresh, thread=f"t{number}") == "true"
        assert wait_until(lambda: not listeners(client, fresh), seconds=10)
    lock.read.release()


def test_python_is_woken_by_java(peer, client, fresh, monkeypatch):
    """All its readers by the writer, and a writer by the last reader; without looking by themselves."""
    monkeypatch.setattr("oncemq_strategies.redisson.lock._POLL", 30)
    for kind, readers in (("write", 3), ("read", 0)):
        assert peer.do("lock", kind, fresh, 0, 25_000) == "true"
        woken: list[float] = []
        lock = ReadWriteLock(client, fresh)
        threads = [waiting(lock.read if readers else lock.write, woken) for _ in range(readers or 1)]
        assert wait_until(lambda: listeners(client, fresh), seconds=10)
        released = time.monotonic()
        assert peer.do("unlock", kind, fresh) == "true"
        for thread in threads:
            thread.join(10)
        assert len(woken) == len(threads)
        assert max(woken) - released < 2


def test_a_foreign_unlock_is_refused(peer, client, fresh):
    """On both sides, and of both locks, which stay."""
    lock = ReadWriteLock(client, fresh)
    for kind, ours in (("read", lock.read), ("write", lock.write)):
        with ours:
            assert "IllegalMonitorState" in peer.do("unlock", kind, fresh)
            assert ours.hold_count() == 1
        assert peer.do("lock", kind, fresh, 0, -1) == "true"
        with pytest.raises(NotHeld):
            ours.release()
        assert peer.do("locked", kind, fresh) == "true"
        peer.do("unlock", kind, fresh)


def test_both_watchdogs_renew_readers(peer, client, fresh, monkeypatch):
    """A reader that reads for longer than a lease is alive for the other side when that stops to read."""
    monkeypatch.setattr("oncemq_strategies.redisson.lock.LEASE", timedelta(milliseconds=600))
    lock, theirs = ReadWriteLock(client, fresh), ReadWriteLock(client, f"{fresh}-java")
    with lock.read:
        assert peer.do("lock", "read", theirs.name, 0, -1) == "true"
        theirs.read.acquire()
        assert peer.do("lock", "write", fresh, WATCHDOG_MS + 500, -1) == "false"
        assert peer.do("lock", "read", fresh, 0, -1) == "true"
        assert peer.do("unlock", "read", fresh) == "true"
        theirs.read.release()
        assert peer.do("lock", "write", fresh, 0, -1) == "false"
        assert not theirs.write.acquire(NOT_AT_ALL)
    assert peer.do("unlock", "read", theirs.name) == "true"


def test_a_dead_java_reader_blocks_for_its_lease_only(any_redis_url, client, fresh):
    """Also where a living reader of Python keeps the lock: its release finds that no other reader lives."""
    lock = ReadWriteLock(client, fresh)
    with Peer(any_redis_url, VERSIONS[0]) as doomed:
        assert doomed.do("lock", "read", fresh, 0, -1) == "true"
        assert lock.read.acquire(NOT_AT_ALL)
        doomed.kill()
    lock.read.release()
    assert not lock.write.acquire(NOT_AT_ALL)
    assert lock.read.acquire(NOT_AT_ALL)
    hold = next(_hold_keys(client, fresh, but=lock.read.owner))
    assert wait_until(lambda: client.command("EXISTS", hold, key=hold) == 0, seconds=10)
    assert lock.read.hold_count() == 1
    lock.read.release()
    assert lock.write.acquire(NOT_AT_ALL)
    lock.write.release()


def _hold_keys(client, name, but):
    fields = [field.decode() for field in client.command("HKEYS", name, key=name)]
    return (f"{{{name}}}:{field}:rwlock_timeout:1" for field in fields if field not in {"mode", but})


def test_a_value_that_both_write_is_never_read_half(peer, client, fresh):
    """Writers of both sides under the write lock: no increment is lost."""
    counter = f"{fresh}-counter"

    def python() -> None:
        for _ in range(15):
            with ReadWriteLock(client, fresh).write:
                value = int(client.command("GET", counter, key=counter) or 0)
                client.command("SET", counter, value + 1, "EX", 600, key=counter)

    asked = [peer.ask("increment", "write", fresh, counter, thread=f"t{n % 3}") for n in range(45)]
    threads = [threading.Thread(target=python) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert {future.result(30) for future in asked} == {"true"}
    assert int(client.command("GET", counter, key=counter)) == 90
