"""Locks and filters by URL share one client: no use leaves a thread or a socket behind."""

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from oncemq.redis.connect import client_of
from oncemq.redis.sharing import SHARED
from oncemq_strategies.redisson import BloomFilter, FairLock, FencedLock, Lock, MultiLock
from oncemq_strategies.redisson.survey.locks import held_by

USES = int(os.environ.get("ONCEMQ_SHARING_USES", "300"))


def sockets() -> set[str]:
    """Return the sockets that this process has, by their inodes."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        try:
            found.add(str(path.readlink()))
        except OSError:
            continue
    return {name for name in found if name.startswith("socket:")}


def use_lock(url: str, name: str) -> None:
    """Use a lock."""
    with Lock(url, name):
        pass


def use_fair(url: str, name: str) -> None:
    """Use a fair lock."""
    with FairLock(url, name):
        pass


def use_fenced(url: str, name: str) -> None:
    """Use a numbered lock."""
    with FencedLock(url, name) as lock:
        assert lock.token > 0


def use_multi(url: str, name: str) -> None:
    """Use two locks as one lock."""
    with MultiLock(Lock(url, name), Lock(url, f"{name}-b")):
        pass


def use_filter(url: str, name: str) -> None:
    """Use a filter."""
    found = BloomFilter(url, name)
    found.try_init(100, 0.01)
    found.add("x")


@pytest.mark.parametrize("use", [use_lock, use_fair, use_fenced, use_multi, use_filter])
def test_uses_by_url_leave_nothing_behind(
    any_redis_url: str, fresh: str, use: Callable[[str, str], None]
) -> None:
    """After the first ones the numbers of threads and sockets stay."""
    SHARED.close()  # threads and sockets of earlier tests end when they like, so only new ones are counted
    others = set(threading.enumerate()), sockets()

    def own() -> tuple[int, int]:
        return len(set(threading.enumerate()) - others[0]), len(sockets() - others[1])

    for _ in range(3):
        use(any_redis_url, fresh)
    before = own()
    for _ in range(USES):
        use(any_redis_url, fresh)
    assert own() == before


def test_a_thread_enters_again_through_another_lock_of_the_name(any_redis_url: str, fresh: str) -> None:
    """As Redisson's locks do; another thread does not, and the last exit frees it."""
    others: list[bool] = []

    def other() -> None:
        others.append(Lock(any_redis_url, fresh).acquire(timedelta(0)))

    with Lock(any_redis_url, fresh), Lock(any_redis_url, fresh) as again:
        held = held_by(client_of(any_redis_url), fresh)
        assert held is not None
        assert held.holds == 2
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert again.owned()
    assert others == [False]
    assert held_by(client_of(any_redis_url), fresh) is None


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_process_is_another_owner_with_connections_of_its_own(redis_url: str, fresh: str) -> None:
    """Also of a lock that its parent made and holds."""
    lock, free = Lock(redis_url, fresh), Lock(redis_url, f"{fresh}-free")
    with lock:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with free:
                    code = 0 if not lock.acquire(timedelta(0)) and not lock.owned() else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert lock.owned()
    with free:
        assert free.owned()


def test_clients_of_urls_are_closed_at_the_end(redis_url: str, fresh: str) -> None:
    """And made again, should a lock be used after that."""
    with Lock(redis_url, fresh):
        before = client_of(redis_url)
    SHARED.close()
    with Lock(redis_url, fresh):
        assert client_of(redis_url) is not before


def test_a_users_client_has_one_of_ours(redis_url: str, fresh: str) -> None:
    """However many locks are made with it, there is one watchdog at most."""
    import redis  # noqa: PLC0415 - an optional package

    theirs: Any = redis.Redis.from_url(redis_url)
    before = threading.active_count()
    for _ in range(20):
        use_lock(theirs, fresh)
    assert threading.active_count() <= before + 1
    assert client_of(theirs) is client_of(theirs)
    theirs.connection_pool.disconnect()  # `close()` of redis 3.5 leaves the pool open
