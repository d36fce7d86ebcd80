"""Stores each departure with the driver chosen by the dispatch service."""

import os

import redis
from pydantic import BaseModel
from sqlalchemy import String, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

drivers = redis.Redis.from_url(os.environ.get("REDIS", "redis://localhost:6379/0"), decode_responses=True)
"""The drivers chosen by the dispatch service, by ride."""


class Base(DeclarativeBase):
    """The tables of this app."""


class Departure(Base):
    """One departure. Without a unique constraint: a double effect would show as a second line."""

    __tablename__ = "departures"

    id: Mapped[int] = mapped_column(primary_key=True)
    ride_id: Mapped[str] = mapped_column(String(64))
    driver: Mapped[str] = mapped_column(String(64))


class Departed(BaseModel):
    """A message's body."""

    ride_id: str


def depart(event: Departed, session: Session) -> None:
    """Store the departure; the lock is held, so no other driver is being chosen meanwhile."""
    driver = drivers.get(f"ride-driver-{event.ride_id}") or "no driver"
    session.add(Departure(ride_id=event.ride_id, driver=str(driver)))


if __name__ == "__main__":
    engine = create_engine(os.environ.get("DATABASE", "sqlite:///rides.db"))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        departures = session.scalars(select(Departure).order_by(Departure.ride_id)).all()
        for departure in departures:
            print(f"{departure.ride_id} departed with {departure.driver}")
    if not departures:
        print("nothing has departed")
