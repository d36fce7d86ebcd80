"""`oncemq locks list` of read-write locks and semaphores, on a server and on a cluster; `check --connect` of handlers' channels."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import pytest
from click.testing import CliRunner

from oncemq.cli import main
from oncemq.redis import RedisClient
from oncemq.redis.address import parse_address
from oncemq.redis.connect import make_client
from oncemq_strategies.redisson import ExpirableSemaphore, Lock, ReadWriteLock, Semaphore
from oncemq_strategies.redisson.names import below
from oncemq_strategies.redisson.survey.locks import all_held, held_by

APP = """\
app: shop
brokers: {{main: {{url: "embedded:///{folder}/broker.db"}}}}
database: {{url: "sqlite:///{folder}/shop.db"}}
redis: {{url: {url}}}
topics: {{orders: {{key: body.id, strategies: [unique_key]}}}}
consumers: {{take: {{topic: orders, handler: "locking_handlers:take"}}}}
"""
Rows = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def client(any_redis_url: str) -> Iterator[RedisClient]:
    """Return a client of another program."""
    with closing(make_client(any_redis_url)) as found:
        yield found


@pytest.fixture
def rows(tmp_path: Path, any_redis_url: str, fresh: str, monkeypatch: pytest.MonkeyPatch) -> Rows:
    """Return a function that returns what the command prints for a pattern of names."""
    write_app(tmp_path, any_redis_url, Semaphore, f"{fresh}-{{key}}", monkeypatch)

    def listed(pattern: str = f"{fresh}*") -> list[dict[str, Any]]:
        shown = invoke(tmp_path, "locks", "list", pattern, "--json")
        return [json.loads(line) for line in shown.splitlines() if line.startswith("{")]

    return listed


def write_app(
    folder: Path, url: str, kind: type, name: str, monkeypatch: pytest.MonkeyPatch, *more: Any
) -> None:
    """Write an app whose handler gets `kind` by this name."""

    def take(body: dict, lock: Any) -> None: ...

    take.__annotations__["lock"] = Annotated[(kind, name, *more)]
    module = ModuleType("locking_handlers")
    vars(module)["take"] = take
    monkeypatch.setitem(sys.modules, "locking_handlers", module)
    (folder / "app.yaml").write_text(APP.format(url=json.dumps(url), folder=folder))


def invoke(folder: Path, *arguments: str) -> str:
    """Run a command in this process and return what it printed."""
    done = CliRunner().invoke(main.oncemq, ["-f", str(folder / "app.yaml"), *arguments])
    return f"{done.output}{done.exception or ''}"


def what(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a row says besides times."""
    return row["name"], row["kind"], row["owner"], row["holds"], row["left"]


def test_each_reader_is_listed(rows: Rows, client: RedisClient, fresh: str) -> None:
    """With the end of its own lease, not the longest of all."""
    long = ReadWriteLock(client, fresh, lease=timedelta(seconds=60), owner="a").read
    short = ReadWriteLock(client, fresh, lease=timedelta(seconds=20), owner="b").read
    with long, short, short:
        first, second = rows()
        assert what(first) == (fresh, "read lock", long.owner, 1, None)
        assert what(second) == (fresh, "read lock", short.owner, 2, None)
        assert first["ends_in"] > 20 >= second["ends_in"] > 0
    assert rows() == []


def test_a_reader_whose_lease_is_over_is_not_listed(rows: Rows, client: RedisClient, fresh: str) -> None:
    """Another reader keeps the lock's hash, in which the dead one still is."""
    dead = ReadWriteLock(client, fresh, owner="dead").read
    with ReadWriteLock(client, fresh, owner="alive").read as alive:
        dead.acquire()
        client.command("DEL", f"{below(fresh, dead.owner)}:rwlock_timeout:1", key=fresh)
        assert [row["owner"] for row in rows()] == [alive.owner]


def test_a_writer_is_listed_and_what_it_reads(rows: Rows, client: RedisClient, fresh: str) -> None:
    """As two holds of one owner; such a lock is no plain one."""
    lock = ReadWriteLock(client, fresh, owner="me")
    with lock.write, lock.read:
        assert sorted(map(what, rows())) == [
            (fresh, "read lock", lock.read.owner, 1, None),
            (fresh, "write lock", lock.write.owner, 1, None),
        ]
        assert all(0 < row["ends_in"] <= 30 for row in rows())
        assert held_by(client, fresh) is None


def test_each_permit_is_listed_with_what_is_left(rows: Rows, client: RedisClient, fresh: str) -> None:
    """By its own name, which `release` of a semaphore takes, also where the semaphore's name has braces."""
    name = f"{fresh}{{tag}}x"
    semaphore = ExpirableSemaphore(client, name, permits=5, lease=timedelta(seconds=20))
    permits = [semaphore.acquire() for _ in range(2)]
    found = sorted(map(what, rows()))
    assert found == sorted((name, "permit", permit.id, 1, 3) for permit in permits if permit is not None)
    assert all(0 < row["ends_in"] <= 20 for row in rows())
    semaphore.release(found[0][2])
    assert [what(row)[2:] for row in rows()] == [(found[1][2], 1, 4)]


def test_a_permit_that_has_ended_counts_as_left(rows: Rows, client: RedisClient, fresh: str) -> None:
    """As the next who asks for one will find it; the survey changes nothing."""
    semaphore = ExpirableSemaphore(client, fresh, permits=2, lease=timedelta(seconds=20))
    semaphore.acquire()
    ended = semaphore.acquire()
    assert ended is not None
    key = below(fresh, "timeout")
    client.command("ZADD", key, (time.time() - 60) * 1000, bytes.fromhex(ended.id), key=key)
    (row,) = rows()
    assert (row["owner"] != ended.id, row["left"]) == (True, 1)
    assert client.command("ZCARD", key, key=key) == 2


def test_semaphores_of_the_apps_handlers_are_listed(rows: Rows, client: RedisClient, fresh: str) -> None:
    """With what is left; other numbers, and semaphores whose permits have leases, are not taken for one."""
    Semaphore(client, f"{fresh}-a", permits=3).acquire(2)
    Semaphore(client, f"other-{fresh}", permits=3).acquire()
    ExpirableSemaphore(client, f"{fresh}-b", permits=3).set_permits(3)
    client.command("SET", f"{fresh}-text", "no number", key=f"{fresh}-text")
    assert what(rows()[0]) == (f"{fresh}-a", "semaphore", "", 0, 1)
    assert not [row for row in rows() if row["name"] == f"{fresh}-text"]
    assert not rows(f"other-{fresh}*")
    assert what(rows(f"other-{fresh}")[0]) == (f"other-{fresh}", "semaphore", "", 0, 2)


def test_plain_locks_are_listed_beside(rows: Rows, client: RedisClient, fresh: str) -> None:
    """As before, and the survey of locks has each owner once."""
    with Lock(client, f"{fresh}-1") as lock, ReadWriteLock(client, f"{fresh}-2").read:
        assert [row["kind"] for row in rows()] == ["lock", "read lock"]
        assert what(rows()[0]) == (f"{fresh}-1", "lock", lock.owner, 1, None)
        assert len(list(all_held(client, f"{fresh}-*"))) == 2


KINDS = [
    pytest.param(Lock, "&redisson_lock__channel:*", id="lock"),
    pytest.param(ReadWriteLock, "&redisson_rwlock:*", id="read-write"),
    pytest.param(Semaphore, "&redisson_sc:*", id="semaphore"),
    pytest.param(ExpirableSemaphore, "&redisson_sc:*", id="expirable"),
]


@pytest.mark.parametrize(("kind", "rule"), KINDS)
def test_check_names_the_channels_that_a_handler_may_not_use(
    tmp_path: Path, redis_url: str, fresh: str, monkeypatch: pytest.MonkeyPatch, kind: type, rule: str
) -> None:
    """Redis 7's default for new users permits none: the lines say the rule, and with it nothing is missing."""
    host, port = parse_address(redis_url).places[0]
    write_app(tmp_path, f"redis://{fresh}:secret@{host}:{port}/0", kind, f"{fresh}-{{key}}", monkeypatch)
    with closing(make_client(redis_url)) as admin:
        admin.command("ACL", "SETUSER", fresh, "on", ">secret", "~*", "+@all", "resetchannels", key="")
        try:
            said = invoke(tmp_path, "check", "--connect")
            assert f"ACL SETUSER {fresh} {rule} +publish" in said
            assert f"ACL SETUSER {fresh} {rule} +subscribe" in said
            admin.command("ACL", "SETUSER", fresh, rule, key="")
            assert "ACL SETUSER" not in invoke(tmp_path, "check", "--connect")
        finally:
            admin.command("ACL", "DELUSER", fresh, key="")
