"""Locks and semaphores in coroutines, on real servers: waiting, giving up, and owners."""

import asyncio
from datetime import timedelta

import pytest

from oncemq.errors import HandlerFault
from oncemq_strategies.redisson import (
    ExpirableSemaphore,
    FairLock,
    Lock,
    ReadLockHeld,
    ReadWriteLock,
    Semaphore,
)
from oncemq_strategies.redisson.waiters import Waiters
from services.waiting import wait_until

NOT_AT_ALL = timedelta(0)
SHORT = timedelta(milliseconds=200)


def quiet(client):
    """Return whether no one waits in any channel any more."""
    return wait_until(lambda: not client.shared(Waiters)._rows, seconds=5)


def test_a_coroutine_without_an_owner_is_refused(client, fresh):
    """Coroutines of one thread would all have the lock."""
    with pytest.raises(HandlerFault, match="owner="):
        asyncio.run(Lock(client, fresh).acquire_async())


def test_waiting_ends_in_time(client, rival, fresh):
    """Of each kind, and no one listens afterwards."""
    Semaphore(rival, f"{fresh}-s", permits=0).set_permits(0)
    ExpirableSemaphore(rival, f"{fresh}-e", permits=0).set_permits(0)

    async def work():
        return [
            await Lock(client, fresh, owner="o").acquire_async(SHORT),
            await Lock(client, fresh, owner="o").acquire_async(NOT_AT_ALL),
            await Semaphore(client, f"{fresh}-s").acquire_async(wait=SHORT),
            await ExpirableSemaphore(client, f"{fresh}-e").acquire_async(SHORT),
        ]

    with Lock(rival, fresh):
        assert asyncio.run(work()) == [False, False, False, None]
    assert quiet(client)


@pytest.mark.parametrize("kind", [Lock, FairLock])
def test_a_waiting_coroutine_is_woken_by_the_release(client, rival, fresh, monkeypatch, kind):
    """Without looking by itself; the loop goes on meanwhile."""
    monkeypatch.setattr("oncemq_strategies.redisson.lock._POLL", 60)
    held = kind(rival, fresh, owner="r")
    held.acquire()

    async def wait():
        async with kind(client, fresh, owner="o") as lock:
            return lock.owned()

    def listening():
        return any(row[0].confirmed.is_set() for row in list(client.shared(Waiters)._rows.values()))

    async def work():
        waiting = asyncio.create_task(wait())
        assert await asyncio.to_thread(wait_until, listening, seconds=5)
        await asyncio.to_thread(held.release)
        return await asyncio.wait_for(waiting, 10)

    assert asyncio.run(work())
    assert not held.locked()
    assert quiet(client)


@pytest.mark.parametrize("kind", [Lock, FairLock])
def test_a_cancelled_wait_leaves_nothing(client, rival, fresh, kind):
    """Neither a lock, nor a place in a queue, nor a waiter; at whichever moment it comes."""
    held = kind(rival, fresh, owner="r")

    async def work(after):
        waiting = asyncio.create_task(kind(client, fresh, owner="o").acquire_async())
        await asyncio.sleep(after)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    queue = f"redisson_lock_queue:{{{fresh}}}"
    for number in range(12):
        held.acquire()
        asyncio.run(work(number / 1000))
        assert wait_until(lambda: client.command("LLEN", queue, key=fresh) == 0, seconds=5)
        held.release()
        assert wait_until(lambda: not held.locked(), seconds=5)
    assert quiet(client)


def test_a_cancelled_acquisition_is_taken_back(client, fresh, monkeypatch):
    """The answer comes after its caller has gone: the lock is free again, as are permits."""
    call = client.call

    async def work(start):
        began, go_on = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow(made):
            answer = call(made)
            loop.call_soon_threadsafe(began.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(10)
            return answer

        monkeypatch.setattr(client, "call", slow)
        task = asyncio.create_task(start())
        await began.wait()
        task.cancel()
        await asyncio.sleep(0)
        monkeypatch.setattr(client, "call", call)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.1)

    lock, semaphore = Lock(client, fresh, owner="o"), Semaphore(client, f"{fresh}-s", permits=1)
    leases = ExpirableSemaphore(client, f"{fresh}-e", permits=1)
    assert (semaphore.available(), semaphore.set_permits(1), leases.set_permits(1)) == (0, False, False)
    for start in (lock.acquire_async, semaphore.acquire_async, leases.acquire_async):
        asyncio.run(work(start))
    assert wait_until(
        lambda: (lock.locked(), semaphore.available(), leases.available()) == (False, 1, 1), seconds=5
    )


def test_a_coroutine_that_reads_is_told_that_it_would_wait_for_itself(client, fresh):
    """As a thread is."""
    lock = ReadWriteLock(client, fresh, owner="o")

    async def work():
        async with lock.read:
            assert not await lock.write.acquire_async(NOT_AT_ALL)
            with pytest.raises(ReadLockHeld):
                await lock.write.acquire_async()

    asyncio.run(work())
    assert not lock.read.locked()


def test_a_fair_lock_goes_to_coroutines_in_the_order_of_asking(client, rival, fresh):
    """They stand in Redisson's queue."""
    held, order = FairLock(rival, fresh, owner="r"), []
    held.acquire()
    queue = f"redisson_lock_queue:{{{fresh}}}"

    def queued():
        return client.command("LLEN", queue, key=fresh)

    async def wait(number):
        async with FairLock(client, fresh, owner=f"o{number}"):
            order.append(number)

    async def work():
        tasks = []
        for number in range(4):
            tasks.append(asyncio.create_task(wait(number)))
            assert await asyncio.to_thread(wait_until, lambda n=number: queued() == n + 1, seconds=5)
        await asyncio.to_thread(held.release)
        await asyncio.wait_for(asyncio.gather(*tasks), 20)

    asyncio.run(work())
    assert order == [0, 1, 2, 3]


def test_async_with_releases_each_tasks_own_permit(client, fresh):
    """Also when several tasks use one object, and end in the order of their beginning."""
    semaphore, seen = ExpirableSemaphore(client, fresh, permits=3), []

    async def work(number, turns):
        async with semaphore as permit:
            seen.append(permit)
            turns[number].set()
            if number < 2:
                await turns[number + 1].wait()
        assert not permit.owned()

    async def all_of_them():
        turns = [asyncio.Event() for _ in range(3)]
        await asyncio.gather(*(work(number, turns) for number in range(3)))

    asyncio.run(all_of_them())
    assert (len({permit.id for permit in seen}), semaphore.available()) == (3, 3)
