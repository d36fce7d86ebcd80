"""The user's tables of the matrix: things that messages change, effects that nothing keeps from being there twice."""

from collections.abc import Sequence

from sqlalchemy import Engine, String, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from oncemq.testing.strategy_suite.effects import Name


class Base(DeclarativeBase):
    """The tables."""


class Thing(Base):
    """What a key names; `state` and `version` belong to strategies, `number` to handlers."""

    __tablename__ = "matrix_things"
    name: Mapped[str] = mapped_column(Name, primary_key=True)
    number: Mapped[int] = mapped_column(default=0)
    version: Mapped[int | None]
    state: Mapped[str | None] = mapped_column(String(20))


class Effect(Base):
    """One effect of one message."""

    __tablename__ = "matrix_effects"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(Name)
    number: Mapped[int]


def add_things(engine: Engine, names: Sequence[str]) -> None:
    """Insert things that nothing has happened to."""
    with engine.begin() as connection:
        connection.execute(insert(Thing), [{"name": name, "number": 0} for name in names])


def effects_of(engine: Engine, names: Sequence[str]) -> dict[str, list[int]]:
    """Return the numbers of the messages that took effect on each thing, in the order of their effects."""
    found: dict[str, list[int]] = {name: [] for name in names}
    with engine.connect() as connection:
        rows = select(Effect.name, Effect.number).where(Effect.name.in_(names)).order_by(Effect.id)
        for name, number in connection.execute(rows):
            found[name].append(number)
    return found


def things(engine: Engine, names: Sequence[str]) -> dict[str, tuple[int, int | None, str | None]]:
    """Return (number, version, state) of each thing."""
    columns = select(Thing.name, Thing.number, Thing.version, Thing.state).where(Thing.name.in_(names))
    with engine.connect() as connection:
        return {row[0]: (row[1], row[2], row[3]) for row in connection.execute(columns)}
