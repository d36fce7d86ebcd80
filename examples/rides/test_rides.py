"""Tests of the rides, without a server: run `pytest` in this folder."""

from pathlib import Path

import pytest
from handlers import Base, Ride, Step
from sqlalchemy import MetaData, select

from oncemq.testing import TestApp

STATES = ["created", "assigned", "departed", "arrived", "picked_up", "completed"]

pytestmark = pytest.mark.oncemq(Path(__file__).with_name("app.yaml"))


@pytest.fixture
def oncemq_tables() -> MetaData:
    """Return the tables of the handlers, for the fixture oncemq_app."""
    return Base.metadata


@pytest.mark.parametrize("seed", range(5))
def test_a_ride_never_goes_back(oncemq_app: TestApp, seed: int) -> None:
    """In whatever order its events arrive, the journal is in the order of the states."""
    events = [("ride-events", {"ride_id": "R-1", "status": status}) for status in STATES]
    outcomes = oncemq_app.shuffle(events, seed=seed)
    assert outcomes[-1].applied
    assert all(outcome.applied or outcome.stale for outcome in outcomes)
    with oncemq_app.session() as session:
        steps = list(session.scalars(select(Step.status).order_by(Step.id)))
        assert steps == [status for status in STATES if status in steps]
        assert session.get_one(Ride, "R-1").status == "completed"
