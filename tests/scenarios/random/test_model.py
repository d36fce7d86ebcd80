"""Every order of events that hypothesis can think of, against an oracle: nothing double, nothing lost, no trace of what is not final.

The engine is the real one, from the intake to the settlement. Broker, clock and processes are the model's, so that
a crash, a lost connection or a lost answer can come at any moment.
"""

import os
import uuid
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import Engine, create_engine, make_url, text

from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from support.database.shared_database import drop_database
from support.effects import Base
from support.model.database import DatabaseFaults
from support.model.judge import CHAINS
from support.model.life import ALL_TROUBLES, LEDGER, Model

LONG = os.environ.get("ONCEMQ_HOSTILE") == "long"
EXAMPLES, STEPS = (int(os.environ.get("ONCEMQ_EXAMPLES", "2000")), 80) if LONG else (25, 40)


@pytest.fixture(
    scope="module",
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server)] if LONG else ["sqlite"],
)
def modelled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine of the model's own, with all tables."""
    if request.param == "sqlite":
        yield from _prepared(f"sqlite:///{tmp_path_factory.mktemp('model') / 'model.db'}")
        return
    server, name = make_url(request.getfixturevalue("postgresql_url")), f"t{uuid.uuid4().hex[:10]}"
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
        yield from _prepared(server.set(database=name).render_as_string(hide_password=False))
        drop_database(connection, name)
    admin.dispose()


def _prepared(url: str) -> Iterator[Engine]:
    engine = make_engine(url)
    schema.create(engine, list(LEDGER))
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def machine(modelled: Engine, request: pytest.FixtureRequest) -> Iterator[type[Model]]:
    """The model on one database, whose faults are undone afterwards."""
    faults = DatabaseFaults(modelled)
    chain = request.getfixturevalue("chain")
    yield type(
        "Life", (Model,), {"engine": modelled, "faults": faults, "chain": chain, "fired": Counter[str]()}
    )
    faults.remove()


@pytest.mark.slow
@pytest.mark.timeout(7200 if LONG else 400)
@pytest.mark.parametrize("chain", CHAINS)
def test_whatever_happens_each_message_takes_effect_once(machine: type[Model], chain: str) -> None:
    """After any order of events every message has exactly the fate that its handler gives it."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=not LONG,
            database=None,
            # Making a failing case short takes longer than a test may.
            phases=list(Phase) if LONG else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("trouble", ALL_TROUBLES, ids=lambda trouble: " ".join(trouble).strip())
@pytest.mark.parametrize("chain", CHAINS)
def test_each_trouble_strikes(machine: type[Model], chain: str, trouble: tuple[str, str]) -> None:
    """No trouble of the model is one in name only, and each alone is survived."""
    life = machine()
    life.start()
    life.publish_some(
        [(0, 1, []), (0, 2, ["fail"]), (1, 1, ["reject"]), (2, 1, ["poison"]), (2, 2, ["retry"])]
    )
    life.strike(trouble, 1)
    life.all_work(20)
    life.time_passes(2)
    life.all_work(20)
    life.teardown()
    assert life.struck(trouble)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("times", range(1, 40, 2) if LONG else (1, 2, 3, 5, 8, 13, 39))
def test_rivals_in_any_number_do_not_change_the_order(machine: type[Model], chain: str, times: int) -> None:
    """However long the database fails, no message overtakes an earlier one of its key."""
    life = machine()
    life.start()
    life.publish_some([(0, 1, []), (0, 2, []), (1, 1, []), (0, 3, [])])
    life.strike(("database", "conflicts"), times)
    life.all_work(20)
    life.order_is_kept()
    life.teardown()


@pytest.mark.parametrize("chain", ["unique_key+state_machine"])
def test_a_try_counts_whose_process_died_before_it_was_observed(machine: type[Model], chain: str) -> None:
    """The copy that was published for a retry knows that its message failed: overtaken, it is a dead letter."""
    life = machine()
    life.start()
    life.publish_some([(0, 4, ["fail"])])
    life.strike(("crash_at", "retry-published"), 1)
    life.all_work(20)
    life.publish_some([(0, 5, [])])
    life.deliver(1, [1])
    life.all_work(20)
    life.time_passes(2)
    life.all_work(20)
    assert [letter.reason for letter in life.broker.dead] == ["overtaken"]
    life.teardown()
