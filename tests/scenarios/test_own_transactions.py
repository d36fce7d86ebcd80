"""A program without handlers publishes in transactions of its own and is killed right after a commit; a relay sends the rest."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pika
import pytest
from sqlalchemy import Engine

from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.messages import outbox
from support.apps.caller import app
from support.apps.program import eventually
from support.apps.warm import WarmProgram
from support.effects import Base, effects

TESTS = Path(__file__).parent.parent
EXPECTED = sorted(
    [f"plain-{number}" for number in range(20)] + [f"own-{number}" for number in range(0, 40, 2)] + ["last"]
)


@pytest.fixture(
    params=[
        ("embedded", "sqlite"),
        pytest.param(("rabbitmq", "postgresql"), marks=pytest.mark.server),
        pytest.param(("rocketmq", "mariadb"), marks=pytest.mark.server),
        pytest.param(("embedded", "postgresql"), marks=pytest.mark.server),
        pytest.param(("rabbitmq", "mariadb"), marks=pytest.mark.server),
        pytest.param(("rocketmq", "postgresql"), marks=pytest.mark.server),
    ],
    ids="-".join,
)
def servers(request: pytest.FixtureRequest, tmp_path: Path, fresh: str) -> Iterator[tuple[str, str]]:
    """URLs of a broker and a database."""
    broker, database = request.param
    url = f"embedded:///{tmp_path}/broker.db"
    if broker != "embedded":
        url = str(request.getfixturevalue(f"{broker}_url"))
    yield url, str(request.getfixturevalue(f"{database}_database"))
    if broker == "rabbitmq":
        with (
            pika.BlockingConnection(pika.URLParameters(url)) as connection,
            suppress(pika.exceptions.AMQPError),
        ):
            connection.channel().queue_delete(f"{fresh}-count.{fresh}")


@pytest.fixture
def engine(servers: tuple[str, str]) -> Iterator[Engine]:
    """The database, with all tables."""
    engine = make_engine(servers[1])
    schema.create(engine)
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


def test_each_committed_message_takes_effect_once(
    servers: tuple[str, str], engine: Engine, fresh: str, tmp_path: Path
) -> None:
    """20 plain messages, 40 in transactions of which half are rolled back, one whose process dies after its commit: 41."""
    broker, database = servers
    declared = app(broker, database, fresh)
    plan = declared.plan()
    for adapter in plan.adapters.values():
        adapter.prepare([consumer.subscription for consumer in plan.consumers])
    command = [sys.executable, "-m", "support.apps.caller", broker, database, fresh]
    died = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr[-2000:]
    with engine.connect() as connection:
        assert outbox.depth(connection, fresh).messages >= 1
    (tmp_path / "app.yaml").write_text(
        f"app: {fresh}\nbrokers: {{main: {{url: '{broker}'}}}}\ndatabase: {{url: '{database}'}}\n"
        f"topics: {{{fresh}: {{key: body.id}}}}\n"
        f"consumers: {{count: {{topic: {fresh}, handler: 'missing:count', strategies: [unique_key]}}}}\n"
    )
    WarmProgram(tmp_path).succeed("relay", "--until-empty")
    declared.run(until_idle="1s")
    eventually(lambda: len(effects(engine)) >= len(EXPECTED), "every effect", timeout=10)
    assert sorted(effects(engine)) == EXPECTED
