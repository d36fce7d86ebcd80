"""Worker processes of a running app are replaced every second, on real servers: each message takes effect once, in its order."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from itertools import groupby
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from oncemq.config import load
from oncemq.contracts.adapter import Confirmed
from oncemq.message.envelope import OutgoingMessage
from support.apps.program import Started, eventually
from support.apps.warm import WarmProgram
from support.brokers.places import (
    EMBEDDED,
    KAFKA_POSTGRESQL,
    MARIADB,
    POSTGRESQL,
    ROCKETMQ_POSTGRESQL,
    Place,
    make_place,
)

REPLACED = int(os.environ.get("ONCEMQ_STORM_RECYCLES", "2"))
"""So many processes are replaced in each test; `make storm-recycling` has hundreds."""
KEYS = 20
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240 + 10 * REPLACED)]

_APP = """
app: {name}
brokers: {{main: {{url: "${{BROKER}}"}}}}
database: {{url: "${{DATABASE}}"}}
grace: 10s
processes: 2
{more}
topics:
  {name}: {{key: body.key, version: body.n, {order}}}
consumers:
  judge:
    topic: {name}
    handler: "handlers:apply"
    retry: {{attempts: 20, backoff: {{first: 100ms, factor: 1}}}}
"""
_HANDLERS = '''"""One row for each event."""

import os
import time

from sqlalchemy import text
from sqlalchemy.orm import Session


def apply(event: dict, session: Session) -> None:
    time.sleep(0.001)
    session.execute(
        text("INSERT INTO effects (entity, n, process) VALUES (:key, :n, :process)"), {**event, "process": os.getpid()}
    )
'''
_ORDERS = {
    "embedded": "strategies: [sequence]",
    "amqp": "strategies: [unique_key], partitions: 4",
    "rocketmq": "strategies: [unique_key], fifo: true",
    "kafka": "strategies: [unique_key]",
}
"""How each broker keeps the events of a key in order across processes."""
_TABLE = {
    "postgresql": "CREATE TABLE effects (number serial PRIMARY KEY, entity varchar(20), n int, process int)",
    "mysql": "CREATE TABLE effects (number int PRIMARY KEY AUTO_INCREMENT, entity varchar(20), n int, process int)",
    "sqlite": "CREATE TABLE effects (number INTEGER PRIMARY KEY AUTOINCREMENT, entity text, n int, process int)",
}


class Traffic:
    """An app of two processes whose every effect is a row, and what is published to it.

    Args:
        place: its servers.
        more: further sections of its file.
    """

    def __init__(self, place: Place, more: str) -> None:
        self.place = place
        self.published = 0
        self._order = next(order for scheme, order in _ORDERS.items() if place.broker.startswith(scheme))
        self.program = WarmProgram(place.folder, place.environment)
        self.configure(more)
        (place.folder / "handlers.py").write_text(_HANDLERS)
        self._engine = create_engine(place.database)
        with self._engine.begin() as connection:
            connection.execute(text(_TABLE[self._engine.dialect.name]))
        self.program.succeed("tables", "create")

    def configure(self, more: str) -> None:
        """Write the app's file."""
        (self.place.folder / "app.yaml").write_text(
            _APP.format(name=self.place.name, order=self._order, more=more)
        )

    def publish_while(self, wanted: Callable[[], bool], said: Callable[[], str]) -> None:
        """Publish the next event of every key, again and again, until it is so."""
        plan = load([self.place.folder / "app.yaml"], environment=self.place.environment).plan
        adapter, target = plan.adapters["main"], plan.consumers[0].subscription
        adapter.prepare([target])

        def more() -> bool:
            while self.published - self.count() < 200:
                self.published += KEYS
                number = self.published // KEYS
                messages = [
                    OutgoingMessage(json.dumps({"key": f"key-{key}", "n": number}).encode(), key=f"key-{key}")
                    for key in range(KEYS)
                ]
                answers = adapter.publish(target.topic, target.options, messages)
                assert all(isinstance(answer, Confirmed) for answer in answers), answers
            return wanted()

        try:
            eventually(more, "replacements under traffic", 60 + 10 * REPLACED, said)
        finally:
            adapter.close(grace=timedelta(seconds=5))
            for engine in plan.engines:
                engine.dispose()

    def count(self) -> int:
        """Return how many effects there are."""
        with self._engine.connect() as connection:
            return int(connection.execute(text("SELECT count(*) FROM effects")).scalar_one())

    def processes(self) -> list[int]:
        """Return the processes that had an effect, the latest last."""
        with self._engine.connect() as connection:
            rows = connection.execute(
                text("SELECT process FROM effects GROUP BY process ORDER BY max(number)")
            )
            return [row.process for row in rows]

    def orders(self) -> dict[str, list[int]]:
        """Return the events of each key in the order of their effects."""
        with self._engine.connect() as connection:
            rows = connection.execute(text("SELECT entity, n FROM effects ORDER BY entity, number")).all()
        return {key: [row.n for row in group] for key, group in groupby(rows, lambda row: row.entity)}

    def turns(self) -> list[str]:
        """Return which process had effects of which key, one line for each turn: an order that is broken shows its owners."""
        with self._engine.connect() as connection:
            rows = connection.execute(
                text("SELECT entity, n, process FROM effects ORDER BY entity, number")
            ).all()
        grouped = groupby(rows, lambda row: (row.entity, row.process))
        found = [(key, process, [row.n for row in group]) for (key, process), group in grouped]
        return [f"{key}: {numbers[0]} to {numbers[-1]} by {process}" for key, process, numbers in found]

    def close(self) -> None:
        """Close the test's own connections: one left open would fail another test."""
        self._engine.dispose()

    def finish(self, running: Started) -> None:
        """Wait for every effect, stop the app, and compare."""
        eventually(lambda: self.count() >= self.published, "every effect", 120, running.said)
        assert running.drain() == 0, running.said()
        each = list(range(1, self.published // KEYS + 1))
        wrong = {key: order for key, order in self.orders().items() if order != each}
        assert not wrong, f"{wrong}\n{self.turns()}\n{running.said()}"
        assert len(self.orders()) == KEYS
        assert "worker process ended" not in running.said(), running.said()


def place_of_successors(
    kind: str, request: pytest.FixtureRequest, folder: Path, fresh: str
) -> Iterator[Place]:
    """Yield a place; on Kafka without static members, beside which no successor can start."""
    for made in make_place(kind, request, folder, fresh):
        broker = made.broker.replace(f"member={fresh}&", "")
        yield Place(broker, made.database, made.name, made.folder)


@pytest.fixture(
    params=[
        EMBEDDED,
        *(
            pytest.param(kind, marks=pytest.mark.server)
            for kind in (POSTGRESQL, MARIADB, ROCKETMQ_POSTGRESQL, KAFKA_POSTGRESQL)
        ),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path, fresh: str) -> Iterator[Place]:
    """Where the app runs."""
    yield from place_of_successors(request.param, request, tmp_path, fresh)


def test_nothing_is_lost_doubled_or_disordered_while_workers_are_recycled(place: Place) -> None:
    """Every worker is replaced each second; effects of a key stay in order, and no process ends by force."""
    with (
        closing(Traffic(place, "recycle: {every: 1s}")) as traffic,
        traffic.program.started("run") as running,
    ):
        traffic.publish_while(
            lambda: running.said().count("worker process was replaced") >= REPLACED, running.said
        )
        traffic.finish(running)
