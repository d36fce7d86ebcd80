"""Tests of the points, without a server: run `pytest` in this folder."""

from pathlib import Path

import pytest
from handlers import Base, Points
from sqlalchemy import MetaData, func, select

from oncemq.testing import TestApp

PAID = {"order_id": "A-1", "payment_no": 1, "user_id": "ada", "amount": 120.0}

pytestmark = pytest.mark.oncemq(Path(__file__).with_name("app.yaml"))


@pytest.fixture
def oncemq_tables() -> MetaData:
    """Return the tables of the handlers, for the fixture oncemq_app."""
    return Base.metadata


def test_a_paid_order_gives_points_once(oncemq_app: TestApp) -> None:
    """However often it is delivered, and also if the process dies before it acknowledges."""
    outcome = oncemq_app.publish("order.paid", PAID)
    assert outcome.applied
    assert oncemq_app.duplicate(outcome).duplicate
    assert oncemq_app.crash_after_commit("order.paid", PAID | {"payment_no": 2}).duplicate
    with oncemq_app.session() as session:
        assert session.scalar(select(func.sum(Points.points))) == 60


def test_nothing_paid_is_a_dead_letter(oncemq_app: TestApp) -> None:
    """The handler refuses it, and the reason is kept."""
    outcome = oncemq_app.publish("order.paid", PAID | {"amount": 0})
    assert (outcome.dead_letter, outcome.reason) == (True, "nothing was paid")
    assert [letter.key for letter in oncemq_app.dead_letters()] == ["A-1"]
