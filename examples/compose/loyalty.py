"""Gives a point for every ten paid; run as a program, it makes the table, or shows it."""

import sys

from pydantic import BaseModel
from sqlalchemy import String, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from oncemq import App


class Base(DeclarativeBase):
    """The tables of this app."""


class Points(Base):
    """Points given for one payment."""

    __tablename__ = "points"

    id: Mapped[int] = mapped_column(primary_key=True)
    user: Mapped[str] = mapped_column(String(64))
    points: Mapped[int]


class OrderPaid(BaseModel):
    """A message's body."""

    order_id: str
    payment_no: int
    user: str
    amount: int


def award_points(order: OrderPaid, session: Session) -> None:
    """Store the points of one payment."""
    session.add(Points(user=order.user, points=order.amount // 10))


if __name__ == "__main__":
    engine = App.from_yaml("app.yaml").engine()
    Base.metadata.create_all(engine)
    if sys.argv[1:] != ["create"]:
        with Session(engine) as session:
            rows, total = session.execute(select(func.count(), func.sum(Points.points))).one()
        print(f"{rows} rows, {total or 0} points")
