"""A process that a handler forked outlives its worker: servers notice the worker's death all the same."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.database.open_connections import OpenConnections
from oncemq.testing.adapter_suite.base import SuitePart
from oncemq.testing.adapter_suite.bench import Bench, bodies, numbered
from oncemq.testing.adapter_suite.holder import Holder
from support.brokers.rabbitmq import ProxiedRabbitMQ
from support.brokers.rocketmq import ProxiedRocketMQ

pytestmark = pytest.mark.server
LOCK_WITHIN = 3
"""Seconds."""


class Outlived(SuitePart):
    """A member with a forked child is killed, and the child lives on."""

    def test_what_a_killed_process_held_goes_to_another_member(self, bench: Bench) -> None:
        """The child has no connection of its parent, so the broker sees them end at once."""
        topic = bench.topic()
        held = bench.subscription(topic)
        bench.prepare(held)
        bench.publish(topic, *numbered(4))
        with Holder(bench.harness, held, count=4, forks=True) as holder:
            holder.wait_until_holding(bench.harness.patience)
            holder.kill()
            received = bench.receive(bench.open(bench.subscription(topic)), 4)
            assert sorted(bodies(received)) == numbered(4)


class TestRabbitMQ(Outlived):
    """Its heartbeats would show the death, too, after twice their interval."""

    @pytest.fixture
    def harness(self, rabbitmq_url: str) -> Iterator[ProxiedRabbitMQ]:
        """Return a harness whose heartbeats show a death after the test."""
        harness = ProxiedRabbitMQ(rabbitmq_url, {"heartbeat": "60s"})
        yield harness
        harness.proxy.close()


class TestRocketMQ(Outlived):
    """A member whose connection lives is taken for alive during two minutes without a heartbeat."""

    @pytest.fixture
    def harness(self, rocketmq_url: str) -> Iterator[ProxiedRocketMQ]:
        """Return proxies of this test's own before the shared servers."""
        harness = ProxiedRocketMQ(rocketmq_url)
        yield harness
        harness.close()


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_rows_that_a_killed_process_had_locked_are_free(kind: str, request: pytest.FixtureRequest) -> None:
    """The child has no connection to the database, so the server rolls the dead process's transaction back."""
    url = request.getfixturevalue(f"{kind}_database")
    engine = make_engine(url)
    try:
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE held (number INTEGER PRIMARY KEY)"))
            connection.execute(text("INSERT INTO held VALUES (1)"))
        engine.dispose()
        with _outlived(url):
            _lock(engine)
    finally:
        engine.dispose()


def _lock(engine: Engine) -> None:
    wait = (
        f"SET LOCAL lock_timeout = '{LOCK_WITHIN}s'"
        if engine.dialect.name == "postgresql"
        else f"SET innodb_lock_wait_timeout = {LOCK_WITHIN}"
    )
    with engine.begin() as connection:
        connection.execute(text(wait))
        assert connection.execute(text("SELECT number FROM held FOR UPDATE")).scalar_one() == 1


@contextmanager
def _outlived(url: str) -> Iterator[None]:
    """Have a process lock a row, fork a child and be killed; the child lives until the end."""
    with subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(f"{url}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "locked\n"
            process.kill()
            process.wait()
            yield
        finally:
            process.kill()


def _hold(url: str) -> None:
    engine = make_engine(url)
    connections = OpenConnections(engine)
    with engine.begin() as connection:
        connection.execute(text("SELECT number FROM held FOR UPDATE"))
        if os.fork() == 0:
            sys.stdin.read()  # until the test closes the pipe
            os._exit(0)
        print("locked", flush=True)  # noqa: T201
        signal.pause()
        connections.end()


if __name__ == "__main__":
    _hold(sys.stdin.readline().rstrip("\n"))
