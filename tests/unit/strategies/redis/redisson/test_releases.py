"""`oncemq locks release` of read-write locks, permits and semaphores, on a server and on a cluster."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from oncemq.cli import main
from oncemq.redis import RedisClient
from oncemq.redis.connect import make_client
from oncemq_strategies.redisson import ExpirableSemaphore, ReadWriteLock, Semaphore, lock
from oncemq_strategies.redisson.survey.locks import holders
from services.waiting import wait_until

APP = """\
app: shop
brokers: {{main: {{url: "embedded:///{folder}/broker.db"}}}}
redis: {{url: {url}}}
"""
AT_ONCE = timedelta(0)
Release = Callable[..., str]


@pytest.fixture
def client(any_redis_url: str) -> Iterator[RedisClient]:
    """Return a client of another program."""
    with closing(make_client(any_redis_url)) as found:
        yield found


@pytest.fixture
def release(tmp_path: Path, any_redis_url: str) -> Release:
    """Return a function that runs the command and returns what it printed."""
    (tmp_path / "app.yaml").write_text(APP.format(url=json.dumps(any_redis_url), folder=tmp_path))

    def run(*arguments: str, answer: str = "y\n") -> str:
        command = ["-f", str(tmp_path / "app.yaml"), "locks", "release", *arguments, "--by", "ada"]
        done = CliRunner().invoke(main.oncemq, command, input=answer)
        return f"{done.output}{done.exception or ''}"

    return run


def test_one_dead_reader_is_taken_out(release: Release, client: RedisClient, fresh: str) -> None:
    """The others go on reading."""
    dead, alive = (ReadWriteLock(client, fresh, owner=name).read for name in ("dead", "alive"))
    with alive:
        dead.acquire()
        said = release(fresh, "--owner", dead.owner)
        assert f"read lock held by {dead.owner}" in said
        assert alive.owner not in said
        assert [each.owner for each in holders(client, fresh)] == [alive.owner]
        assert not ReadWriteLock(client, fresh, owner="new").write.acquire(AT_ONCE)


def test_all_readers_lose_the_lock(release: Release, client: RedisClient, fresh: str) -> None:
    """A writer that waits is woken by Redisson's message, and does not wait for its next look."""
    readers = [ReadWriteLock(client, fresh, owner=name).read for name in ("one", "two")]
    for reader in readers:
        reader.acquire()
    assert "Release these 2?" in release(fresh)
    assert ReadWriteLock(client, fresh, owner="new").write.acquire(AT_ONCE)


def test_a_waiting_reader_is_woken(
    release: Release, client: RedisClient, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the channel of read-write locks; it would look by itself a minute later."""
    monkeypatch.setattr(lock, "_POLL", 60)
    writer = ReadWriteLock(client, fresh, owner="dead").write
    assert writer.acquire(AT_ONCE)
    got = threading.Event()

    def read() -> None:
        with ReadWriteLock(client, fresh, owner="next").read:
            got.set()

    waiter = threading.Thread(target=read, daemon=True)
    waiter.start()
    assert wait_until(lambda: not got.is_set() and waiter.is_alive(), seconds=5)
    assert f"write lock held by {writer.owner}" in release(fresh, "--yes")
    assert got.wait(20)
    waiter.join(10)


def test_permits_with_leases_are_given_back(release: Release, client: RedisClient, fresh: str) -> None:
    """One by its name, or all."""
    semaphore = ExpirableSemaphore(client, fresh, permits=3, lease=timedelta(seconds=60))
    permits = [semaphore.acquire() for _ in range(3)]
    first = permits[0]
    assert first is not None
    assert f"permit held by {first.id}" in release(fresh, "--owner", first.id)
    assert semaphore.available() == 1
    assert "Release these 2?" in release(fresh)
    assert semaphore.available() == 3
    assert "3 permits left" in release(fresh)


def test_permits_without_owners_are_given_back_by_number(
    release: Release, client: RedisClient, fresh: str
) -> None:
    """Without a number the command says what is left and does nothing."""
    semaphore = Semaphore(client, fresh, permits=3)
    assert semaphore.acquire(2, AT_ONCE)
    assert "1 permits left, and knows no owners" in release(fresh)
    assert semaphore.available() == 1
    assert "released" in release(fresh, "--permits", "2")
    assert semaphore.available() == 3


def test_a_free_lock_is_said_to_be_free(release: Release, fresh: str) -> None:
    """There is nothing to ask about."""
    assert release(fresh) == "no client holds this lock\n"


def test_nothing_is_released_without_consent(release: Release, client: RedisClient, fresh: str) -> None:
    """The question comes after what is held and what happens to its holder."""
    writer = ReadWriteLock(client, fresh, owner="me").write
    with writer:
        said = release(fresh, answer="n\n")
        assert "its holder is not stopped" in said
        assert writer.owned()


def test_wrong_names_are_refused_in_words(release: Release, client: RedisClient, fresh: str) -> None:
    """An owner that does not hold it, and permits of what is no semaphore."""
    reader = ReadWriteLock(client, fresh, owner="me").read
    with reader:
        assert f"'you' does not hold {fresh}: {reader.owner}" in release(fresh, "--owner", "you")
        assert "--permits is for a semaphore" in release(fresh, "--permits", "1")
        assert reader.owned()
