"""Tests of the thirty minutes, which pass at once: run `pytest` in this folder."""

from pathlib import Path

import pytest
from handlers import Base, Order
from sqlalchemy import MetaData

from oncemq.testing import TestApp

pytestmark = pytest.mark.oncemq(Path(__file__).with_name("app.yaml"))


@pytest.fixture
def oncemq_tables() -> MetaData:
    """Return the tables of the handlers, for the fixture oncemq_app."""
    return Base.metadata


def state(app: TestApp, order_id: str) -> str:
    """Return what became of an order."""
    with app.session() as session:
        return session.get_one(Order, order_id).state


def test_an_order_that_is_not_paid_is_cancelled_after_thirty_minutes(oncemq_app: TestApp) -> None:
    """Not a minute before."""
    oncemq_app.publish("order.placed", {"order_id": "o-1"})
    oncemq_app.clock.advance("29m")
    assert state(oncemq_app, "o-1") == "placed"
    oncemq_app.clock.advance("2m")
    assert state(oncemq_app, "o-1") == "cancelled"


def test_a_paid_order_is_not_looked_at_again(oncemq_app: TestApp) -> None:
    """The message that was published for later is never sent."""
    oncemq_app.publish("order.placed", {"order_id": "o-1"})
    oncemq_app.publish("order.paid", {"order_id": "o-1"})
    oncemq_app.clock.advance("1h")
    assert (state(oncemq_app, "o-1"), oncemq_app.published("payment.due")) == ("paid", [])


def test_copies_and_crashes_change_nothing(oncemq_app: TestApp) -> None:
    """An order that is delivered twice, also after a crash, is looked at once."""
    outcome = oncemq_app.crash_after_commit("order.placed", {"order_id": "o-1"})
    oncemq_app.duplicate(outcome)
    oncemq_app.clock.advance("1h")
    assert len(oncemq_app.published("payment.due")) == 1
    assert state(oncemq_app, "o-1") == "cancelled"
