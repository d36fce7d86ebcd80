"""`oncemq locks`: seeing who holds what, and taking it away with a warning."""

import json
from datetime import timedelta

import pytest
from click.testing import CliRunner

from oncemq.cli import main
from oncemq.redis.connect import make_client
from oncemq_strategies.redisson import Lock, NotHeld

APP = """app: shop
brokers: {main: {url: "embedded:///memory"}}
"""


@pytest.fixture
def folder(tmp_path, any_redis_url):
    """An app with a Redis."""
    (tmp_path / "app.yaml").write_text(f"{APP}redis: {{url: {json.dumps(any_redis_url)}}}\n")
    return tmp_path


def oncemq(folder, *arguments, answer=""):
    """Run the command in this process and return what it printed."""
    app = ("-f", str(folder / "app.yaml"))
    done = CliRunner().invoke(main.oncemq, [*app, *arguments], input=answer)
    return f"{done.output}{done.exception or ''}"


def test_held_locks_are_listed(folder, any_redis_url, fresh):
    """With their owners, for people and for scripts."""
    client = make_client(any_redis_url)
    with Lock(client, f"{fresh}-1") as lock, Lock(client, f"{fresh}-2"):
        shown = oncemq(folder, "locks", "list", f"{fresh}*", "--json").splitlines()
        rows = [json.loads(line) for line in shown]
        assert [(row["name"], row["owner"], row["holds"]) for row in rows] == [
            (f"{fresh}-1", lock.owner, 1),
            (f"{fresh}-2", lock.owner, 1),
        ]
    assert "no such lock is held" in oncemq(folder, "locks", "list", f"{fresh}*")
    client.close()


def test_a_lock_is_taken_away_only_when_that_is_meant(folder, any_redis_url, fresh):
    """The warning says what its holder will do."""
    client = make_client(any_redis_url)
    lock = Lock(client, fresh)
    assert lock.acquire(timedelta(0))
    refused = oncemq(folder, "locks", "release", fresh, answer="n\n")
    assert "holder is not stopped" in refused
    assert lock.locked()
    assert "released" in oncemq(folder, "locks", "release", fresh, "--yes")
    assert not lock.locked()
    with pytest.raises(NotHeld):
        lock.release()
    assert "no client holds" in oncemq(folder, "locks", "release", fresh)
    client.close()


def test_an_app_without_redis_is_told_what_to_write(tmp_path):
    """It has no locks to list."""
    (tmp_path / "app.yaml").write_text(APP)
    assert 'write redis: {url: "redis://' in oncemq(tmp_path, "locks", "list")


def test_the_help_knows_commands_that_strategies_bring(tmp_path):
    """In one list with the others."""
    assert "List the locks in Redis" in oncemq(tmp_path, "--help")
