"""Points for paid orders: the tables of shop and loyalty programme, and the handler."""

import os

from pydantic import BaseModel
from sqlalchemy import String, UniqueConstraint, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    """The tables of this app."""


class Order(Base):
    """An order of the shop, written when it is paid."""

    __tablename__ = "orders"

    order_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    user: Mapped[str] = mapped_column(String(64))


class Points(Base):
    """Points of the loyalty programme; the unique order id is the last guard, against rows written by hand."""

    __tablename__ = "points"
    __table_args__ = (UniqueConstraint("order_id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str] = mapped_column(String(64))
    user: Mapped[str] = mapped_column(String(64))
    points: Mapped[int]


class OrderPaid(BaseModel):
    """A message's body."""

    order_id: str
    payment_no: int
    user: str


def award(paid: OrderPaid, session: Session) -> None:
    """Give 30 points for a paid order."""
    session.add(Points(order_id=paid.order_id, user=paid.user, points=30))


if __name__ == "__main__":
    engine = create_engine(os.environ.get("DATABASE", "sqlite:///loyalty.db"))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        orders = session.scalars(select(Order).order_by(Order.order_id)).all()
        given = {row.order_id: row.points for row in session.scalars(select(Points))}
    for order in orders:
        print(f"{order.order_id} of {order.user}: {given.get(order.order_id, 0)} points")
    if not orders:
        print("no orders")
