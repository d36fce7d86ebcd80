"""What a handler reads, locks and is measured by is what the earlier messages of its unit have reached, as if they had committed."""

from typing import Any

import pytest
from sqlalchemy import Engine, String, delete, insert, select, text, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from oncemq_strategies.state_machine.strategy import StateMachine
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.effects import Shared, points
from support.units import UnitBench, orders

MACHINE = {
    "to": "body.to",
    "transitions": {
        "created": ["paid", "cancelled"],
        "paid": ["shipped", "cancelled"],
        "shipped": ["delivered"],
    },
    "entity": {"table": "earlier_orders", "key": "id", "state": "state"},
    "early": "reject",
}


class Base(DeclarativeBase):
    """The tables of these tests."""


class Order(Base):
    """A row whose state moves."""

    __tablename__ = "earlier_orders"
    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    state: Mapped[str] = mapped_column(String(20))


@pytest.fixture
def placed(engine: Engine) -> Engine:
    """Return the database with two orders that are created."""
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(delete(Order))
        connection.execute(insert(Order), [{"id": name, "state": "created"} for name in ("a", "b")])
    return engine


@pytest.mark.parametrize("together", [True, False])
def test_a_message_is_measured_by_what_a_neighbour_has_written(placed: Engine, together: bool) -> None:
    """Where a handler cancels another order by SQL, that order's message finds it cancelled, in the same unit and alone."""

    def handler(order: dict[str, Any], session: Session) -> None:
        if order["id"] == "1":
            session.execute(update(Order).where(Order.id == "b").values(state="cancelled"))

    first, second = orders("1", key="a", to="paid"), orders("2", key="b", to="paid")
    bench = UnitBench(placed, handler, (StateMachine, MACHINE))
    outcomes = bench.run(*first, *second) if together else [*bench.run(*first), *bench.run(*second)]
    assert outcomes == ["applied", "stale"]
    with placed.connect() as connection:
        rows = connection.execute(select(Order.id, Order.state).order_by(Order.id)).all()
    assert [tuple(row) for row in rows] == [("a", "paid"), ("b", "cancelled")]


def test_a_handler_reads_the_state_that_its_predecessor_reached(placed: Engine) -> None:
    """The state column is written before a later handler can read it, also of the same key and unit."""
    read: list[str] = []

    def handler(order: dict[str, Any], session: Session) -> None:
        query = text("SELECT state FROM earlier_orders WHERE id = :id")
        read.append(session.execute(query, {"id": order["key"]}).scalar_one())

    steps = [orders(str(at), key="a", to=to)[0] for at, to in enumerate(("paid", "shipped", "delivered"))]
    assert UnitBench(placed, handler, (StateMachine, MACHINE)).run(*steps) == ["applied"] * 3
    assert read[-3:] == ["created", "paid", "shipped"]


def test_a_locking_read_is_not_answered_from_an_earlier_messages_object(engine: Engine) -> None:
    """A row that others changed since an earlier message read it is locked and read as it is."""
    if engine.dialect.name == "sqlite":
        return  # its only writer is the unit
    kept: list[Shared] = []

    def handler(order: dict[str, Any], session: Session) -> None:
        if order["id"] == "reads":
            kept.append(session.get_one(Shared, 1))
            with engine.begin() as other:
                other.execute(update(Shared).where(Shared.id == 1).values(points=100))
            return
        session.get_one(Shared, 1, with_for_update=True).points += 1

    assert UnitBench(engine, handler, UniqueKey).run(*orders("reads", "adds")) == ["applied"] * 2
    assert points(engine) == 101
