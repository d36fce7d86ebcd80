"""A table of rides as users have it, for strategies that work on users' tables."""

from typing import Any

from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, insert, select
from sqlalchemy.orm import Mapped, Session, declarative_base, mapped_column

from oncemq.ledger.database.engine import make_engine

TABLE = Table(
    "rides",
    MetaData(),
    Column("ride_id", Integer, primary_key=True, autoincrement=False),
    Column("status", String(20)),
    Column("version", Integer),
    Column("points", Integer, nullable=False, default=0),
    mysql_engine="InnoDB",
)

Base: Any = declarative_base()


class Ride(Base):
    """The same table as a mapped class."""

    __tablename__ = "rides"
    ride_id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str | None]
    version: Mapped[int | None]
    points: Mapped[int]


class VersionedRide(Base):
    """The same table as a class whose versions SQLAlchemy counts and compares."""

    __table__ = Ride.__table__
    __mapper_args__: Any = {"version_id_col": Ride.__table__.c.version}  # noqa: RUF012


def create(url: str, *rows: dict[str, Any]) -> None:
    """Create the table with these rows."""
    engine = make_engine(url)
    TABLE.create(engine)
    with engine.begin() as connection:
        for row in rows:
            connection.execute(insert(TABLE).values({"points": 0, **row}))
    engine.dispose()


def of(engine: Engine, column: str) -> dict[int, Any]:
    """Return one column of every ride."""
    with engine.connect() as connection:
        return {row.ride_id: getattr(row, column) for row in connection.execute(select(TABLE))}


def add_point(body: Any, session: Session) -> None:
    """Insert the ride if it is missing, and add a point."""
    number = int(body["id"])
    ride = session.get(Ride, number)
    if ride is None:
        ride = Ride(ride_id=number, points=0)
        session.add(ride)
    ride.points += 1
