"""Adds one row to the order's journal for each order event."""

import os
from datetime import datetime

from pydantic import BaseModel
from sqlalchemy import String, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    """The tables of this app."""


class Step(Base):
    """One step of an order's life. Without a unique constraint: a double effect would show as a second row."""

    __tablename__ = "order_steps"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str] = mapped_column(String(64), index=True)
    status: Mapped[str] = mapped_column(String(20))
    at: Mapped[datetime]


class OrderEvent(BaseModel):
    """A message's body."""

    order_id: str
    status: str
    at: datetime


def track(event: OrderEvent, session: Session) -> None:
    """Write down one step of an order's life."""
    session.add(Step(order_id=event.order_id, status=event.status, at=event.at))


if __name__ == "__main__":
    engine = create_engine(os.environ.get("DATABASE", "sqlite:///orders.db"))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        steps = session.scalars(select(Step).order_by(Step.order_id, Step.id)).all()
    print(
        *(f"{step.order_id} was {step.status} at {step.at}" for step in steps) if steps else ["no steps"],
        sep="\n",
    )
