"""Gives thirty points for each paid order."""

import os
from typing import Annotated

from pydantic import BaseModel, Field
from sqlalchemy import String, create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from oncemq import Reject


class Base(DeclarativeBase):
    """The tables of this app."""


class Points(Base):
    """Points given for one order."""

    __tablename__ = "points"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str] = mapped_column(String(64))
    user_id: Mapped[str] = mapped_column(String(64))
    points: Mapped[int]


class OrderPaid(BaseModel):
    """A message's body."""

    order_id: str
    payment_no: int
    user_id: str
    amount: Annotated[float, Field(ge=0)]


def award_points(order: OrderPaid, session: Session) -> None:
    """Give 30 points for a paid order."""
    if order.amount == 0:
        raise Reject("nothing was paid")
    session.add(Points(order_id=order.order_id, user_id=order.user_id, points=30))


if __name__ == "__main__":
    engine = create_engine(os.environ.get("DATABASE", "sqlite:///points.db"))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        sums = select(Points.user_id, func.sum(Points.points)).group_by(Points.user_id)
        users = session.execute(sums.order_by(Points.user_id)).all()
    print(
        *(f"{user} has {points} points" for user, points in users) if users else ["no user has points"],
        sep="\n",
    )
