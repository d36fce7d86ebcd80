"""RocketMQ's transactional messages: consumers get a message if, and only if, the transaction has committed."""

import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, func, select

from oncemq.contracts.transactional_messages import Decision
from oncemq.engine.application import Application
from oncemq.engine.base.hook_points import TRANSACTION_POINTS
from oncemq.engine.plan import AppPlan
from oncemq.engine.publishers.transactional_publisher import TransactionalPublisher
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.messages import transactions
from support.apps.program import eventually
from support.apps.transactional_app import Spec
from support.effects import Base, Name, effects

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240), pytest.mark.server]

NOT_COMMITTED, COMMITTED = TRANSACTION_POINTS[:3], TRANSACTION_POINTS[3:]
TESTS = Path(__file__).parent.parent


@pytest.fixture
def spec(postgresql_database: str, rocketmq_url: str, fresh: str) -> Spec:
    """Return an app on RocketMQ and PostgreSQL."""
    return Spec(fresh, rocketmq_url, postgresql_database)


@pytest.fixture
def engine(spec: Spec) -> Iterator[Engine]:
    """Lend the app's database, with all tables."""
    engine = make_engine(spec.database)
    schema.create(engine)
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


def refusals(engine: Engine) -> int:
    """Return how many transactions the ledger says are rolled back."""
    with engine.connect() as connection:
        table = transactions.TABLE
        return int(connection.execute(select(func.count()).where(~table.c.committed)).scalar_one())


def names(engine: Engine) -> list[str]:
    """Return the orders that were taken."""
    with engine.connect() as connection:
        return sorted(connection.execute(select(Name.name)).scalars())


def test_death_of_any_process_when_the_ledger_decides(spec: Spec, engine: Engine) -> None:
    """Five processes are killed, each one step further; others answer for them, and only what is committed arrives.

    A transaction that is open meanwhile is asked about, too; the broker waits for it and delivers its message.
    """
    _kill_at_each_step(spec)
    assert names(engine) == sorted(COMMITTED)
    application = Application(spec.plan())
    consuming = threading.Thread(target=application.run)
    consuming.start()
    try:
        with Watched(spec.plan()) as publisher:
            with publisher.transaction(spec.topic, {"id": "long", "key": "long"}) as session:
                session.add(Name(name="long"))
                eventually(lambda: Decision.UNKNOWN in publisher.answers, "a question too early")
            eventually(lambda: refusals(engine) == len(NOT_COMMITTED), "the ledger's refusals")
            wanted = {*COMMITTED, "long"}
            eventually(lambda: wanted <= set(effects(engine)), "what was committed")
    finally:
        application.stop()
        consuming.join(60)
    assert set(effects(engine)) == wanted


class Watched(TransactionalPublisher):
    """Remembers what it answered."""

    def __init__(self, plan: AppPlan) -> None:
        super().__init__(plan)
        self.answers: list[Decision] = []

    def decide(self, transaction: str) -> Decision:
        """Answer and remember."""
        self.answers.append(super().decide(transaction))
        return self.answers[-1]


def _kill_at_each_step(spec: Spec) -> None:
    running = [
        (point, subprocess.Popen(replace(spec, point=point).command(), cwd=TESTS, stderr=subprocess.PIPE))
        for point in (*NOT_COMMITTED, *COMMITTED)
    ]
    for point, process in running:
        _, said = process.communicate(timeout=90)
        assert process.returncode == -signal.SIGKILL, (point, said.decode()[-2000:])
