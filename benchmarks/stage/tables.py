"""What every peer works on: the same message, the same tables, the same row through the ORM."""

from pydantic import BaseModel
from sqlalchemy import Connection, Engine, Integer, String, insert, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

USERS = 100
THINGS = 1000


class Base(DeclarativeBase):
    """Tables of the benchmarks."""


class Points(Base):
    """Points for one order; no unique constraint, so that a double effect is counted."""

    __tablename__ = "bench_points"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str] = mapped_column(String(64))
    user_id: Mapped[str] = mapped_column(String(64))
    points: Mapped[int] = mapped_column(Integer)


class Processed(Base):
    """The dedup table of the peers, written by hand as their users do."""

    __tablename__ = "bench_processed"

    order_id: Mapped[str] = mapped_column(String(64), primary_key=True)


class User(Base):
    """A row that many messages change."""

    __tablename__ = "bench_users"

    user_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    points: Mapped[int] = mapped_column(Integer)


class Thing(Base):
    """A row that strategies compare or lock; it exists before its first message."""

    __tablename__ = "bench_things"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    number: Mapped[int] = mapped_column(Integer)
    version: Mapped[int | None] = mapped_column(Integer)


class OrderPaid(BaseModel):
    """What a message says; a negative amount is poison."""

    order_id: str
    user_id: str
    amount: float


def create(engine: Engine) -> None:
    """Create the tables; the database itself notes when each row came, which costs every peer the same.

    The column `at` is not mapped: the ORM would otherwise read it back.
    """
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(
                text("ALTER TABLE bench_points ADD COLUMN at timestamptz NOT NULL DEFAULT clock_timestamp()")
            )
        refill(connection)


def refill(connection: Connection) -> None:
    """Have every user start at 0 points, and every thing at number 0."""
    rows = [{"user_id": f"user-{number}", "points": 0} for number in range(USERS)]
    connection.execute(text("DELETE FROM bench_users"))
    connection.execute(insert(User), rows)
    things = [{"name": f"k{number}", "number": 0} for number in range(THINGS)]
    connection.execute(text("DELETE FROM bench_things"))
    connection.execute(insert(Thing), things)
