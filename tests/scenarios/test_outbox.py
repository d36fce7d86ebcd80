"""From one broker through a database to another: everything published arrives and counts once, no matter who dies when."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pika
import pytest
from sqlalchemy import Engine

from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.messages import outbox
from oncemq.message.envelope import OutgoingMessage
from support.apps.program import eventually
from support.apps.publishing_app import Spec
from support.effects import Base, effects

pytestmark = pytest.mark.timeout(120)

KEYS = 7
ORDERS = [{"id": f"o{number}", "key": f"k{number % KEYS}"} for number in range(150)]
TESTS = Path(__file__).parent.parent


@pytest.fixture(
    params=[
        ("embedded", "sqlite", "embedded"),
        pytest.param(("rabbitmq", "postgresql", "embedded"), marks=pytest.mark.server),
        pytest.param(("embedded", "mariadb", "rabbitmq"), marks=pytest.mark.server),
        pytest.param(("rabbitmq", "sqlite", "rabbitmq"), marks=pytest.mark.server),
    ],
    ids="-".join,
)
def spec(request: pytest.FixtureRequest, tmp_path: Path, fresh: str) -> Iterator[Spec]:
    """Each chain of brokers and database."""
    source, database, target = request.param

    def broker(kind: str, file: str) -> str:
        embedded = f"embedded:///{tmp_path}/{file}.db"
        return str(request.getfixturevalue("rabbitmq_url")) if kind == "rabbitmq" else embedded

    server = f"sqlite:///{tmp_path}/effects.db"
    url = server if database == "sqlite" else request.getfixturevalue(f"{database}_database")
    found = Spec(fresh, broker(source, "source"), broker(target, "target"), url, str(tmp_path))
    yield found
    for url in {found.source, found.target}:
        if url.startswith("amqp"):
            _delete_queues(url, found.name)


def _delete_queues(url: str, name: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        for topic, consumer in (("orders", "ship"), ("shipped", "count")):
            with suppress(pika.exceptions.AMQPError):
                connection.channel().queue_delete(f"{name}-{consumer}.{topic}-{name}")


@pytest.fixture
def engine(spec: Spec) -> Iterator[Engine]:
    """The app's database, with the tables that it needs; orders wait at the source."""
    engine = make_engine(spec.database)
    plan = spec.plan()
    schema.create(engine, plan.tables())
    Base.metadata.create_all(engine)
    for broker in ("source", "target"):
        plan.adapters[broker].prepare(
            [consumer.subscription for consumer in plan.consumers if consumer.broker == broker]
        )
    messages = [OutgoingMessage(json.dumps(body).encode()) for body in ORDERS]
    plan.adapters["source"].publish(f"orders-{spec.name}", {}, messages)
    for adapter in plan.adapters.values():
        adapter.close(grace=timedelta(seconds=5))
    yield engine
    engine.dispose()


def run_until_killed(spec: Spec) -> None:
    """Run the app; the fault must have fired."""
    ended = subprocess.run(spec.command(), cwd=TESTS, capture_output=True, timeout=60, check=False)
    assert ended.returncode == -9, ended.stdout.decode()[-2000:] + ended.stderr.decode()[-2000:]


def waiting(engine: Engine, spec: Spec) -> int:
    """Return how many messages wait in the outbox."""
    with engine.connect() as connection:
        return outbox.depth(connection, spec.name).messages


def test_deaths_between_commit_confirmation_and_deletion_lose_and_double_nothing(
    spec: Spec, engine: Engine
) -> None:
    """Killed with messages stored and not sent, then sent and not deleted; in the end each order has one effect."""
    run_until_killed(replace(spec, point="committed", passes=1))
    left = waiting(engine, spec)
    run_until_killed(replace(spec, point="outbox-published", passes=1))
    unsure = waiting(engine, spec)
    with subprocess.Popen(spec.command(), cwd=TESTS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as app:
        try:
            eventually(lambda: len(effects(engine)) >= len(ORDERS), "every effect", said=lambda: "")
            eventually(lambda: waiting(engine, spec) == 0, "an empty outbox", said=lambda: "")
        finally:
            app.terminate()
            output = app.communicate(timeout=30)[0].decode()
    assert app.returncode == 0, output[-2000:]
    found = effects(engine)
    assert sorted(found) == sorted(body["id"] for body in ORDERS)
    for key in range(KEYS):
        mine = [body["id"] for body in ORDERS if body["key"] == f"k{key}"]
        assert [number for number in found if number in mine] == mine
    assert left, "nothing was stored and unsent when the first process died"
    assert unsure, "nothing was sent and undeleted when the second process died"
