"""A Redis user who may touch keys and no channel: Redis 7's default for new users."""

import logging
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from threading import Thread

import pytest

from oncemq.redis import RedisClient
from oncemq.redis.address import parse_address
from oncemq.redis.connect import make_client
from oncemq_strategies.redis_lock.unit_locks import Tried, UnitLocks
from oncemq_strategies.redisson import FairLock, FencedLock, Lock


@pytest.fixture
def restricted(redis_url: str, fresh: str) -> Iterator[RedisClient]:
    """A client of such a user."""
    port = parse_address(redis_url).places[0]
    with closing(make_client(redis_url)) as admin:
        admin.command("ACL", "SETUSER", fresh, "on", ">secret", "~*", "+@all", "resetchannels", key="")
        with closing(make_client(f"redis://{fresh}:secret@{port[0]}:{port[1]}/0")) as client:
            yield client
        admin.command("ACL", "DELUSER", fresh, key="")


@pytest.mark.parametrize("kind", [Lock, FencedLock, FairLock])
def test_a_lock_is_released_without_its_message(
    restricted: RedisClient, fresh: str, kind: type[Lock], caplog: pytest.LogCaptureFixture
) -> None:
    """It works again and again; what is missing is said at most once."""
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            with kind(restricted, fresh):
                pass
        assert not kind(restricted, fresh).locked()
    assert len([record for record in caplog.records if "may not publish" in record.getMessage()]) <= 1


def test_a_units_locks_are_released_and_it_is_said_once(
    restricted: RedisClient, fresh: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With the rule that is missing."""
    locks = UnitLocks(restricted, lease=None, fenced=False, replicas=0)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            tried = Tried()
            locks.acquire([f"{fresh}-a", f"{fresh}-b"], "me", tried)
            assert len(tried.held) == 2
            locks.release(tried.held.values())
    (said,) = [record.getMessage() for record in caplog.records if "may not publish" in record.getMessage()]
    assert "&redisson_lock__channel:*" in said


def test_a_waiter_without_messages_looks_for_itself(restricted: RedisClient, fresh: str) -> None:
    """It cannot subscribe either, and gets the lock all the same."""
    got: list[bool] = []
    with Lock(restricted, fresh):
        waiter = Thread(target=lambda: got.append(Lock(restricted, fresh).acquire(timedelta(seconds=20))))
        waiter.start()
    waiter.join(20)
    assert got == [True]
