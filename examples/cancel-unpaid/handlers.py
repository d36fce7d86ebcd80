"""Cancels each order that is not paid within thirty minutes."""

import os
from datetime import timedelta

from pydantic import BaseModel
from sqlalchemy import String, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from oncemq import Publisher

PAY_WITHIN = timedelta(minutes=30)


class Base(DeclarativeBase):
    """The tables of this app."""


class Order(Base):
    """An order and what became of it: placed, paid or cancelled."""

    __tablename__ = "orders"

    order_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    state: Mapped[str] = mapped_column(String(16))


class OrderEvent(BaseModel):
    """A message's body."""

    order_id: str


def place(event: OrderEvent, session: Session, publisher: Publisher) -> None:
    """Store an order, and look again in thirty minutes."""
    session.add(Order(order_id=event.order_id, state="placed"))
    publisher.publish("payment.due", {"order_id": event.order_id}, delay=PAY_WITHIN)


def pay(event: OrderEvent, session: Session, publisher: Publisher) -> None:
    """Note the payment; nothing needs to look again."""
    session.get_one(Order, event.order_id).state = "paid"
    publisher.cancel("payment.due", key=event.order_id)


def cancel_unpaid(event: OrderEvent, session: Session) -> None:
    """Cancel the order, unless the payment came at the last moment."""
    order = session.get_one(Order, event.order_id)
    if order.state == "placed":
        order.state = "cancelled"


if __name__ == "__main__":
    engine = create_engine(os.environ.get("DATABASE", "sqlite:///shop.db"))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        orders = session.scalars(select(Order).order_by(Order.order_id)).all()
    print(*(f"{order.order_id} is {order.state}" for order in orders) if orders else ["no orders"], sep="\n")
