"""Tables in which tests see what handlers did: one that only grows, a taken name, a shared row."""

from sqlalchemy import Engine, String, delete, insert, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    """The tables of these tests."""


class Effect(Base):
    """One row for every effect; nothing keeps it from being there twice."""

    __tablename__ = "effects"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str] = mapped_column(String(200))
    key: Mapped[str] = mapped_column(String(200))
    attempt: Mapped[int] = mapped_column(default=1)


class Name(Base):
    """Each name once; `taken` is there already."""

    __tablename__ = "names"
    name: Mapped[str] = mapped_column(String(200), primary_key=True)


class Shared(Base):
    """Rows that many messages change."""

    __tablename__ = "shared"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    points: Mapped[int] = mapped_column(default=0)


TAKE_THE_TAKEN = text("INSERT INTO names (name) VALUES ('taken')")
"""Fails with a duplicate key."""


def empty(engine: Engine, *, shared: int = 2) -> None:
    """Bring the tables to their first state, with so many shared rows of 0 points."""
    with engine.begin() as connection:
        for table in (Effect, Name, Shared):
            connection.execute(delete(table))
        connection.execute(insert(Name).values(name="taken"))
        connection.execute(insert(Shared), [{"id": number + 1, "points": 0} for number in range(shared)])


def give(session: Session, order: dict[str, str]) -> None:
    """Leave the effect of `order`, as handlers mostly do it."""
    session.add(Effect(order_id=order["id"], key=order["key"]))


def effects(engine: Engine) -> list[str]:
    """Return the ids of the orders that took effect, in the order of their rows."""
    with engine.connect() as connection:
        return list(connection.scalars(select(Effect.order_id).order_by(Effect.id)))


def points(engine: Engine, number: int = 1) -> int:
    """Return the points of a shared row."""
    with engine.connect() as connection:
        return connection.execute(select(Shared.points).where(Shared.id == number)).scalar_one()
