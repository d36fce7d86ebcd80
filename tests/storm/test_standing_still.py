"""A member that is blocked in its transaction holds up its own messages, and only as long as it does so."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert

from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.records.processed import TABLE
from storm.attack.nursery import Nursery
from storm.attack.stage import CONSUMER, Settings, Stage, bodies, wait_for
from support.brokers.places import MARIADB, POSTGRESQL, Place, make_place

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(300)]

MESSAGES = 600 if "ONCEMQ_STORM_MESSAGES" in os.environ else 120


@pytest.fixture(params=[POSTGRESQL, MARIADB])
def place(request: pytest.FixtureRequest, fresh: str, tmp_path: Path) -> Iterator[Place]:
    """A broker, and a database that locks rows."""
    yield from make_place(request.param, request, tmp_path, fresh)


def hold(connection: Connection, consumer: str, told: Sequence[dict[str, Any]]) -> None:
    """Note messages as applied in a transaction that does not end, as anyone who is blocked has done."""
    connection.execute(
        insert(TABLE),
        [
            {
                "consumer": consumer,
                "identity": message["id"],
                "key": message["key"],
                "processed_at": datetime.now(UTC),
            }
            for message in told
        ],
    )


def test_the_others_go_on_and_all_of_it_follows(place: Place) -> None:
    """Half of the messages are in the hands of someone who is blocked: the rest is applied, those after him."""
    told = bodies(MESSAGES, prefix="m", keys=MESSAGES, twice=0.0)
    engine = make_engine(place.database)
    with ExitStack() as stack:
        stack.callback(engine.dispose)
        nursery = stack.enter_context(Nursery(place.folder))
        stage = Stage(place, nursery, Settings(attempts=2))
        with engine.connect() as sleeper:
            hold(sleeper, f"{place.name}.{CONSUMER}", told[: MESSAGES // 2])
            stage.publish(told)
            consumer = stage.consumer()
            wait_for(lambda: stage.applied() == MESSAGES // 2, "messages without a held key", 90)
            sleeper.rollback()
        engine.dispose()  # the oracle counts what is left of sessions
        stage.happened("stood still")
        wait_for(lambda: stage.applied() == MESSAGES, "the others", 60)
        assert consumer.drain() == 0, nursery.said()
        verdict = stage.verdict()
        assert "database failed, transaction is retried" in nursery.said(most=10**9)
    assert verdict.violations == [], f"{nursery.said()}\n{verdict}"
