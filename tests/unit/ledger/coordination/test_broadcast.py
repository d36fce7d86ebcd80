"""Positions of the instances of broadcast consumers, and which process is an instance."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine, update

from oncemq.common.clock import SystemClock
from oncemq.errors import BrokerUnavailable
from oncemq.ledger.coordination import broadcast, leases
from oncemq.ledger.coordination.broadcast import LedgerPositions
from oncemq.ledger.database.engine import make_engine

CLOCK = SystemClock()
QUEUES = {("orders", "broker-a/0"): 7, ("orders", "broker-a/1"): 9, ("rides", "broker-a/0"): 1}


def positions(engine: Engine, instance: str = "a") -> LedgerPositions:
    """Return those of an instance, in a process of its own."""
    return LedgerPositions(f"shop.refresh@{instance}", engine, CLOCK)


def test_positions_are_of_an_instance_and_a_topic(engine: Engine) -> None:
    """Another instance is new; what is written again replaces the former position."""
    first = positions(engine)
    assert first.write(QUEUES)
    assert first.write({("orders", "broker-a/0"): 8})
    assert first.read("orders") == {"broker-a/0": 8, "broker-a/1": 9}
    assert positions(engine, "b").read("orders") == {}


def test_one_process_is_an_instance(engine: Engine) -> None:
    """The other one is told which, and writes nothing, until the first one leaves."""
    first, second = positions(engine), positions(engine)
    assert first.hold() == ""
    assert second.hold().split("/")[1].isdecimal()
    assert not second.write(QUEUES)
    assert first.read("orders") == {}
    first.leave()
    assert second.write(QUEUES)
    assert first.hold() != ""


def test_a_process_that_died_is_replaced_when_its_lease_is_over(engine: Engine) -> None:
    """It leaves nothing behind but the moment at which that is."""
    first, second = positions(engine), positions(engine)
    assert first.hold() == ""
    over = CLOCK.now() - timedelta(seconds=1)
    with engine.begin() as connection:
        connection.execute(update(leases.TABLE).values(until=over))
    assert second.hold() == ""
    assert first.hold() != ""


def test_the_instances_of_a_consumer_are_listed(engine: Engine) -> None:
    """Those of other consumers, of which the name is longer or another, are not."""
    for scope in ("shop.refresh@a", "shop.refresh@b", "shop.refresher@c", "shop.refresh-x@d"):
        LedgerPositions(scope, engine, CLOCK).hold()
    with engine.connect() as connection:
        assert list(broadcast.instances(connection, "shop.refresh")) == ["shop.refresh@a", "shop.refresh@b"]
        future = CLOCK.now() + timedelta(minutes=1)
        assert broadcast.gone(connection, "shop.refresh", future, timedelta(minutes=-1)) == [
            "shop.refresh@a",
            "shop.refresh@b",
        ]
        assert broadcast.gone(connection, "shop.refresh", CLOCK.now(), timedelta(0)) == []


def test_an_instance_that_is_back_is_not_forgotten(engine: Engine) -> None:
    """Only one that has not run since the moment."""
    first = positions(engine)
    first.write(QUEUES)
    with engine.begin() as connection:
        assert not broadcast.forget(connection, "shop.refresh@a", CLOCK.now())
        assert broadcast.forget(connection, "shop.refresh@a", CLOCK.now() + timedelta(minutes=1))
    assert first.read("orders") == {}


def test_a_database_that_is_away_is_as_a_broker_that_is_away() -> None:
    """The member tries again, and its health says why."""
    lost = LedgerPositions("shop.refresh@a", make_engine("sqlite:////nowhere/at/all.db"), CLOCK)
    with pytest.raises(BrokerUnavailable, match="how far this instance has read"):
        lost.hold()
