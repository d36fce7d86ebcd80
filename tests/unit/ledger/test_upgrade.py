"""An upgrade of the ledger beside processes that run, and one that is killed in the middle."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, inspect, text
from sqlalchemy.orm import Session

from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.schema import MIGRATIONS, Migration
from oncemq.testing.scripted import ScriptedAdapter
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.engine import make_app, make_consumer, running
from support.units import build

TESTS = Path(__file__).parents[2]
COLUMN = "ALTER TABLE oncemq_processed ADD COLUMN note INTEGER"


def columns(engine: Engine) -> set[str]:
    """Return the columns of the records."""
    return {column["name"] for column in inspect(engine).get_columns("oncemq_processed")}


def test_what_runs_goes_on_while_a_newer_version_upgrades(engine: Engine) -> None:
    """A process of the older version applies messages before and after a new column, and finds its duplicates."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE given (id INTEGER)"))
    adapter = ScriptedAdapter()

    def give(order: dict[str, Any], session: Session) -> None:
        session.execute(text("INSERT INTO given VALUES (:id)"), order)

    consumer = make_consumer(give, [build(UniqueKey, engine, "points")])
    steps = [Migration(MIGRATIONS[-1].version + 1, "notes", lambda _: [COLUMN])]
    with running(make_app(adapter, engine, consumer)):
        for number in range(20):
            adapter.deliver(b'{"id": %d, "key": "k%d"}' % (number, number))
        adapter.wait_until(lambda a: len(a.acknowledged) == 20)
        assert schema.upgrade(engine, migrations=steps) == [f"version {steps[0].version}: notes"]
        for number in range(10, 30):
            adapter.deliver(b'{"id": %d, "key": "k%d"}' % (number, number))
        adapter.wait_until(lambda a: len(a.acknowledged) == 40)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT COUNT(*) FROM given")) == 30
    assert "note" in columns(engine)


UPGRADE = """
import os, signal, sys
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.schema import MIGRATIONS, Migration

def statements(connection):
    yield sys.argv[2]
    os.kill(os.getpid(), signal.SIGKILL)

schema.upgrade(make_engine(sys.argv[1]), migrations=[Migration(MIGRATIONS[-1].version + 1, "notes", statements)])
"""


def test_an_upgrade_that_was_killed_is_done_by_the_next(database_url: str) -> None:
    """Nothing of it is noted before it is whole, its lock ends with its process, and the step runs again."""
    engine = schema_of(database_url)
    # MySQL's statements are not part of a transaction, so a step of ours must bear to be repeated.
    wanted = (
        COLUMN.replace("COLUMN", "COLUMN IF NOT EXISTS")
        if engine.dialect.name in {"mysql", "mariadb"}
        else COLUMN
    )
    killed = subprocess.run(
        [sys.executable, "-c", UPGRADE, database_url, wanted],
        cwd=TESTS,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    schema.ensure(engine)
    steps = [Migration(MIGRATIONS[-1].version + 1, "notes", lambda _: [wanted])]
    assert schema.upgrade(engine, migrations=steps) == [f"version {steps[0].version}: notes"]
    assert "note" in columns(engine)
    engine.dispose()


def schema_of(url: str) -> Engine:
    """Return a database with the ledger of this version."""
    engine = make_engine(url)
    schema.create(engine)
    return engine
