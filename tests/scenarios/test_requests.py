"""Servers in processes of their own on one database: each payment is taken once, no matter who is asked and who dies."""

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine, text

from support.apps.payments import METADATA, order, payments
from support.database.ledgers import ledger_engine

SERVER = Path(__file__).parents[1] / "support" / "apps" / "payments_server.py"
KEYS, COPIES = 40, 5


class Server:
    """One server process."""

    def __init__(self, kind: str, database: str, name: str) -> None:
        command = [sys.executable, str(SERVER), kind, database, name]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = ""

    def ready(self) -> None:
        """Wait until it has said its port."""
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}/payments"

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def pay(self, client: httpx.Client, key: str, account: str) -> httpx.Response:
        """Send one payment."""
        call = order(account, key=f'"{key}"')
        return client.post(self.url, content=call.body, headers=call.sent())


@pytest.fixture
def engine(postgresql_database: str) -> Iterator[Engine]:
    """A PostgreSQL database with all tables."""
    with ledger_engine(postgresql_database, METADATA) as engine:
        yield engine


@pytest.fixture
def servers(engine: Engine, fresh: str) -> Iterator[list[Server]]:
    """A WSGI server with threads, and an ASGI server, beside each other."""
    url = engine.url.render_as_string(hide_password=False)
    with ExitStack() as teardown:
        servers = [Server(kind, url, fresh) for kind in ("wsgi", "asgi")]
        for server in servers:
            teardown.callback(server.kill)
        for server in servers:
            server.ready()
        yield servers


def test_copies_at_two_servers_at_once(engine: Engine, servers: list[Server]) -> None:
    """Every key is paid once and always answered alike; anyone who comes meanwhile is told to come again."""
    jobs = [(number, server) for number in range(KEYS) for server in servers for _ in range(COPIES)]
    random.Random(7).shuffle(jobs)
    with httpx.Client(timeout=30) as client, ThreadPoolExecutor(12) as callers:
        replies = list(
            callers.map(lambda job: (job[0], job[1].pay(client, f"k-{job[0]}", f"a-{job[0]}")), jobs)
        )
    assert Counter(reply.status_code for _, reply in replies).keys() <= {201, 409}
    answers: dict[int, set[bytes]] = {}
    for number, reply in replies:
        if reply.status_code == 201:
            answers.setdefault(number, set()).add(reply.content)
        else:
            assert reply.headers["retry-after"] == "1"
    assert {number: len(found) for number, found in answers.items()} == dict.fromkeys(range(KEYS), 1)
    assert [payments(engine, f"a-{number}") for number in range(KEYS)] == [1] * KEYS


def test_a_server_that_is_killed_in_the_middle(engine: Engine, servers: list[Server]) -> None:
    """Its payment is neither lost nor taken twice: the other server refuses until the lease ends, then takes it."""
    dying, other = servers
    with httpx.Client(timeout=30) as client, ThreadPoolExecutor(1) as caller:
        with engine.begin() as blocking:
            blocking.execute(text("LOCK TABLE payments"))
            first = caller.submit(dying.pay, client, "k", "ann")
            until(lambda: waiting(engine), "the handler waits for its table")
            meanwhile = other.pay(client, "k", "ann")
            dying.kill()
        assert isinstance(first.exception(30), httpx.HTTPError)
        replies = [meanwhile]
        until(lambda: replies.append(other.pay(client, "k", "ann")) or replies[-1].status_code == 201, "201")
        again = other.pay(client, "k", "ann")
    assert {reply.status_code for reply in replies[:-1]} == {409}
    assert again.headers["idempotency-replayed"] == "true"
    assert payments(engine, "ann") == 1


def waiting(engine: Engine) -> bool:
    """Return whether someone waits for a lock in this database."""
    with engine.connect() as connection:
        asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return bool(connection.execute(text(asked)).scalar())


def until(condition, what: str) -> None:
    """Poll until `condition` holds."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
