"""`Semaphore` and `ExpirableSemaphore` on real servers: numbers, leases, deaths, lost answers, and what is refused."""

import signal
import subprocess
import sys
import threading
from datetime import timedelta

import pytest

from oncemq.errors import RedisUnavailable
from oncemq_strategies.redisson import ExpirableSemaphore, NotHeld, Semaphore
from oncemq_strategies.redisson.lease_keeper import Keeper
from services.waiting import wait_until

NOT_AT_ALL = timedelta(0)
SHORT = timedelta(milliseconds=300)
LONG = timedelta(seconds=10)


@pytest.fixture
def lossy(client, monkeypatch):
    """A client that loses the answer to its next call, and the list that says so."""
    call, lose = client.call, []

    def lossy(made):
        answer = call(made)
        if lose:
            lose.clear()
            raise RedisUnavailable("lost", sent=True)
        return answer

    monkeypatch.setattr(client, "call", lossy)
    return client, lose


def test_a_semaphore_gives_no_more_than_it_has(client, rival, fresh):
    """All or none, and what is given back is there for others."""
    ours, theirs = Semaphore(client, fresh, permits=3), Semaphore(rival, fresh)
    assert (ours.acquire(2, NOT_AT_ALL), theirs.acquire(2, NOT_AT_ALL)) == (True, False)
    assert theirs.acquire(1, NOT_AT_ALL)
    with pytest.raises(ValueError, match="at least 0"):
        ours.release(-1)
    ours.release(2)
    assert theirs.acquire(2, NOT_AT_ALL)
    assert (ours.available(), ours.acquire(0)) == (0, True)


def test_permits_are_set_only_once(client, rival, fresh):
    """A semaphore that exists keeps its number, whatever a later one is made with."""
    assert Semaphore(client, fresh, permits=2).acquire(1)
    assert Semaphore(rival, fresh, permits=5).acquire(1)
    assert (Semaphore(client, fresh).available(), Semaphore(client, fresh).set_permits(9)) == (0, False)


def test_every_waiter_that_fits_is_woken_by_one_release(client, fresh, monkeypatch):
    """Also when the one that has waited longest wants more than there is."""
    monkeypatch.setattr("oncemq_strategies.redisson.lock._POLL", 60)
    semaphore, got = Semaphore(client, fresh, permits=0), []
    semaphore.set_permits(0)

    def want(permits):
        got.append((permits, semaphore.acquire(permits, LONG)))

    threads = [threading.Thread(target=want, args=(permits,)) for permits in (5, 1, 2)]
    for thread in threads:
        thread.start()
    channel = f"redisson_sc:{{{fresh}}}"
    assert wait_until(
        lambda: any(client.at(place, "PUBSUB", "CHANNELS", channel) for place in client.routes.masters()),
        seconds=5,
    )
    semaphore.release(3)
    assert wait_until(lambda: len(got) == 2, seconds=5)
    semaphore.release(5)
    for thread in threads:
        thread.join(5)
    assert sorted(got) == [(1, True), (2, True), (5, True)]


def test_a_lost_answer_changes_the_number_once(lossy, fresh):
    """Each change is repeated when its answer was lost, and its effect is that of one."""
    client, lose = lossy
    semaphore = Semaphore(client, fresh)
    for change, left in (
        (lambda: semaphore.set_permits(5), 5),
        (lambda: semaphore.acquire(2), 3),
        (lambda: semaphore.release(1), 4),
        (lambda: semaphore.add_permits(3), 7),
    ):
        lose.append(True)
        assert change() in {True, None}
        assert semaphore.available() == left
    lose.append(True)
    assert (semaphore.drain(), semaphore.available()) == (7, 0)


def test_a_lost_answer_takes_and_gives_one_permit(lossy, fresh):
    """A permit has a name, by which the repetition is known."""
    client, lose = lossy
    semaphore = ExpirableSemaphore(client, fresh, permits=2)
    semaphore.acquire().release()
    lose.append(True)
    permit = semaphore.acquire()
    assert semaphore.available() == 1
    lose.append(True)
    permit.release()
    assert semaphore.available() == 2


def test_a_permit_is_released_once(client, fresh):
    """A second release, a foreign name and nonsense are refused, and change nothing."""
    semaphore = ExpirableSemaphore(client, fresh, permits=1)
    with semaphore.acquire() as permit:
        for name in ("0" * 32, "nonsense", ""):
            with pytest.raises(NotHeld):
                semaphore.release(name)
        assert semaphore.available() == 0
    with pytest.raises(NotHeld):
        permit.release()
    assert (semaphore.available(), permit.owned()) == (1, False)


def test_a_permit_that_was_taken_away_is_lost(client, fresh):
    """Its holder is told, and can neither extend nor release it."""
    told = threading.Event()
    semaphore = ExpirableSemaphore(client, fresh, permits=1, lease=SHORT, on_loss=told.set)
    permit = semaphore.acquire()
    permit.extend(timedelta(minutes=1))
    assert not told.wait(2 * SHORT.total_seconds())
    client.command("DEL", f"{{{fresh}}}:timeout", key=fresh)
    with pytest.raises(NotHeld):
        permit.extend(LONG)
    assert (told.is_set(), permit.owned()) == (True, False)
    with pytest.raises(NotHeld):
        permit.release()


def test_with_releases_each_threads_own_permit(client, fresh):
    """Also when several threads use one object, and the keeper renews nothing afterwards."""
    semaphore = ExpirableSemaphore(client, fresh, permits=4)
    seen, barrier = set(), threading.Barrier(4)

    def work():
        with semaphore as permit:
            barrier.wait(10)
            seen.add(permit.id)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert (len(seen), semaphore.available()) == (4, 4)
    assert not any(client.shared(Keeper).find(fresh, permit) for permit in seen)


HOLDER = """
import sys, time
from datetime import timedelta
from oncemq_strategies.redisson import ExpirableSemaphore, Semaphore
from oncemq_strategies.redisson.semaphores import expirable
expirable.LEASE = timedelta(seconds=1)
url = sys.stdin.readline().strip()
permit = ExpirableSemaphore(url, sys.argv[1], permits=1).acquire()
Semaphore(url, sys.argv[1] + "-plain", permits=1).acquire()
print("held", flush=True)
time.sleep(60)
"""


def test_the_permit_of_a_killed_process_comes_back(any_redis_url, client, fresh):
    """Of a semaphore whose permits expire; that of a plain one is lost, as with Redisson."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, fresh], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        holder.stdin.write(any_redis_url + "\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "held\n"
        assert ExpirableSemaphore(client, fresh).acquire(timedelta(milliseconds=1500)) is None
        holder.send_signal(signal.SIGKILL)
        assert ExpirableSemaphore(client, fresh).acquire(LONG)
        assert not Semaphore(client, f"{fresh}-plain").acquire(wait=NOT_AT_ALL)
    finally:
        holder.kill()
        holder.communicate()
