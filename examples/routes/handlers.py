"""Handlers of the events of an order, one for each kind, each with a payload type of its own."""

import os

from pydantic import BaseModel
from sqlalchemy import String, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

CARRIERS = {"post", "courier"}


class Base(DeclarativeBase):
    """The tables of this app."""


class Entry(Base):
    """One line of an order's history. Without a unique constraint: a double effect would show as a second row."""

    __tablename__ = "order_history"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str] = mapped_column(String(64), index=True)
    text: Mapped[str] = mapped_column(String(200))


class OrderPlaced(BaseModel):
    """A customer has placed an order."""

    order_id: str
    customer: str


class OrderPaid(BaseModel):
    """It was paid."""

    order_id: str
    amount: int


class OrderShipped(BaseModel):
    """It was given to a carrier."""

    order_id: str
    carrier: str


def placed(order: OrderPlaced, session: Session) -> None:
    """Note who placed it."""
    session.add(Entry(order_id=order.order_id, text=f"placed by {order.customer}"))


def paid(order: OrderPaid, session: Session) -> None:
    """Note the amount."""
    session.add(Entry(order_id=order.order_id, text=f"paid {order.amount}"))


def shipped(order: OrderShipped, session: Session) -> None:
    """Note the carrier; one that is not known yet may be known in a moment."""
    session.add(Entry(order_id=order.order_id, text=f"shipped by {order.carrier}"))
    if order.carrier not in CARRIERS:
        raise LookupError(f"no carrier {order.carrier!r}")


if __name__ == "__main__":
    engine = create_engine(os.environ.get("DATABASE", "sqlite:///orders.db"))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        entries = session.scalars(select(Entry).order_by(Entry.order_id, Entry.id)).all()
    print(*(f"{entry.order_id} {entry.text}" for entry in entries) if entries else ["no entries"], sep="\n")
