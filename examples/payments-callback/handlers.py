"""Books each payment. Run by itself, this file prints the bookings."""

import os

from pydantic import BaseModel
from sqlalchemy import String, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    """The tables of this app."""


class Booking(Base):
    """One payment. Without a unique constraint: a double effect would show as a second line."""

    __tablename__ = "bookings"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str] = mapped_column(String(64))
    payment_id: Mapped[str] = mapped_column(String(64))
    amount: Mapped[float]


class Callback(BaseModel):
    """The body of the provider's message."""

    order_id: str
    payment_id: str
    amount: float


def book(payment: Callback, session: Session) -> None:
    """Book the payment."""
    session.add(Booking(order_id=payment.order_id, payment_id=payment.payment_id, amount=payment.amount))


if __name__ == "__main__":
    engine = create_engine(os.environ.get("DATABASE", "sqlite:///payments.db"))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        bookings = session.scalars(select(Booking).order_by(Booking.order_id, Booking.payment_id)).all()
        for booking in bookings:
            print(f"{booking.order_id} {booking.payment_id}: {booking.amount:.2f}")
    if not bookings:
        print("nothing is booked")
