"""Writes a ride's row, and a line in its journal for each event that moves it forward."""

import os

from pydantic import BaseModel
from sqlalchemy import String, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    """The tables of this app."""


class Ride(Base):
    """A ride; its status is written by the strategy, after the handler."""

    __tablename__ = "rides"

    ride_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    status: Mapped[str | None] = mapped_column(String(20))


class Step(Base):
    """One line of the journal. Without a unique constraint: a double effect would show as a second line."""

    __tablename__ = "ride_steps"

    id: Mapped[int] = mapped_column(primary_key=True)
    ride_id: Mapped[str] = mapped_column(String(64))
    status: Mapped[str] = mapped_column(String(20))


class RideEvent(BaseModel):
    """A message's body."""

    ride_id: str
    status: str


def track(event: RideEvent, session: Session) -> None:
    """Store the ride if it is new, and the step."""
    if session.get(Ride, event.ride_id) is None:
        session.add(Ride(ride_id=event.ride_id))
    session.add(Step(ride_id=event.ride_id, status=event.status))


if __name__ == "__main__":
    engine = create_engine(os.environ.get("DATABASE", "sqlite:///rides.db"))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        rides = session.scalars(select(Ride).order_by(Ride.ride_id)).all()
        for ride in rides:
            steps = session.scalars(select(Step.status).where(Step.ride_id == ride.ride_id).order_by(Step.id))
            print(f"{ride.ride_id} is {ride.status}: {', '.join(steps)}")
    if not rides:
        print("no rides")
