"""What is shown of dead letters that are there, beside those that were written."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine

from oncemq.contracts.adapter import Adapter, ParkedDeadLetter
from oncemq.engine.plan import AppPlan
from oncemq.engine.status import StatusReporter
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.messages import dead_letters
from oncemq.message.envelope import Message
from oncemq.observe.endpoint import Address
from oncemq.observe.observers import Observers
from oncemq.observe.state import ConsumerState
from oncemq.testing.scripted import ScriptedAdapter
from support.engine import make_app, make_consumer
from support.heard import Heard
from unit.engine.test_on_embedded import broker

LETTER = Message("orders", b"no json")


@pytest.fixture
def engine(sqlite_database: str) -> Iterator[Engine]:
    """A database."""
    engine = make_engine(sqlite_database)
    yield engine
    engine.dispose()


def planned(adapter: Adapter, engine: Engine) -> AppPlan:
    """Return an app with one consumer that shows metrics."""
    consumer = make_consumer(lambda order: None, name="points")
    adapter.prepare([consumer.subscription])
    return make_app(adapter, engine, consumer, http=Address("127.0.0.1", 0))


def counted(plan: AppPlan, heard: Heard) -> int | None:
    """Return what the reporter of a process shows after its first count."""
    shown = ConsumerState("points", subscribed=True)
    consumer = SimpleNamespace(state=lambda **_: shown, plan=plan.consumers[0])
    crew: Any = SimpleNamespace(alive=lambda: True, parked=None, consumer=consumer)
    reporter = StatusReporter(plan, {"points": crew}, Observers([heard]))
    reporter.count()
    (row,) = reporter.rows()
    return row.dead_letters


def test_letters_at_the_broker_and_in_the_ledger_are_counted(tmp_path: Path, engine: Engine) -> None:
    """Both are there for `oncemq dead-letters`, so both count; those of other consumers do not."""
    adapter = broker(tmp_path)
    plan = planned(adapter, engine)
    subscription = plan.consumers[0].subscription
    assert counted(plan, Heard()) == 0
    adapter.publish_dead_letters(subscription, [ParkedDeadLetter(LETTER, {})] * 2)
    with engine.begin() as connection:
        for scope in ("shop.points", "shop.other"):
            dead_letters.add(connection, scope, LETTER, {}, plan.clock.now())
    assert counted(plan, Heard()) == 3
    adapter.close(grace=timedelta(seconds=1))


def test_a_broker_that_does_not_count_them_shows_no_figure(engine: Engine) -> None:
    """A part of them would look like all."""
    assert counted(planned(ScriptedAdapter(), engine), Heard()) is None


def test_a_count_that_fails_shows_no_figure(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a background job: its failure is said, and the last figure is not shown any more."""
    adapter, heard = broker(tmp_path), Heard()
    plan = planned(adapter, engine)

    def fail(_: object) -> int:
        raise OSError("away")

    monkeypatch.setattr(adapter, "dead_letter_count", fail)
    assert counted(plan, heard) is None
    assert "counting the dead letters of points" in [call.arguments[0] for call in heard.calls]
    adapter.close(grace=timedelta(seconds=1))
