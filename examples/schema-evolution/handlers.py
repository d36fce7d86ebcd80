"""Books payments, which come in two versions; the handler is written for the second one."""

import os
from typing import Any

from pydantic import BaseModel
from sqlalchemy import String, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    """The tables of this app."""


class Booking(Base):
    """A payment. Without a unique constraint: a double effect would show as a second row."""

    __tablename__ = "payment_bookings"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str] = mapped_column(String(64), index=True)
    cents: Mapped[int]
    currency: Mapped[str] = mapped_column(String(3))


class Paid(BaseModel):
    """A body of version 2."""

    order_id: str
    cents: int
    currency: str = "EUR"


def to_2(body: dict[str, Any]) -> dict[str, Any]:
    """Bring a body of version 1 to version 2: there was one currency."""
    return {**body, "currency": "EUR"}


def book(paid: Paid, session: Session) -> None:
    """Book it."""
    session.add(Booking(order_id=paid.order_id, cents=paid.cents, currency=paid.currency))


if __name__ == "__main__":
    engine = create_engine(os.environ.get("DATABASE", "sqlite:///payments.db"))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        rows = session.scalars(select(Booking).order_by(Booking.order_id, Booking.id)).all()
    print(
        *(f"{row.order_id} {row.cents} {row.currency}" for row in rows) if rows else ["no bookings"], sep="\n"
    )
