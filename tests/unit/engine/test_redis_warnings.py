"""What an app says about its Redis before it works: when it starts, and by `oncemq check --connect`."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from oncemq.ledger.database.engine import make_engine
from oncemq.redis.connect import make_client
from oncemq.testing.scripted import ScriptedAdapter
from support.apps.command_line import CommandLine
from support.engine import make_app, make_consumer, running
from support.heard import Heard
from support.servers import OwnServer


@pytest.fixture
def evicting(own_redis: OwnServer) -> Iterator[str]:
    """URL of a Redis that throws away what it has no room for."""
    url: str = own_redis().url
    with closing(make_client(url)) as client:
        client.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru", key="")
        yield url


def told(url: str, database: str) -> list[str]:
    """Start an app with a Redis and return what it warned of."""
    heard = Heard()
    plan = make_app(
        ScriptedAdapter(),
        make_engine(database),
        make_consumer(lambda order: None),
        redis=make_client(url),
    )
    with running(plan, observers=[heard]):
        return [str(event.arguments[0]) for event in heard.of("warned")]


def test_an_app_warns_of_a_redis_that_evicts(evicting: str, sqlite_database: str) -> None:
    """Locks would vanish while they are held; what to set is said."""
    warnings = [warning for warning in told(evicting, sqlite_database) if "allkeys-lru" in warning]
    assert ["noeviction" in warning for warning in warnings] == [True]


def test_an_app_says_that_its_redis_is_away(sqlite_database: str) -> None:
    """It starts all the same: consumers without Redis work, the others pause until it is back."""
    assert any("127.0.0.1:1" in warning for warning in told("redis://127.0.0.1:1", sqlite_database))


def test_check_connect_warns_of_a_redis_that_evicts(evicting: str, tmp_path: Path) -> None:
    """A warning beside the verdict; without --connect no one asks."""
    line = CommandLine(tmp_path)
    line.create_tables()
    with line.app.open("a") as file:
        file.write(f'\nredis: {{url: "{evicting}"}}\n')
    assert "noeviction" not in line.run("check").stderr
    said = line.run("check", "--connect")
    assert "set it to noeviction" in said.stderr
    assert "may run" in said.stdout
