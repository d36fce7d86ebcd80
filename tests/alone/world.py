"""Holds the tables of random programs, and what is to be seen in them afterwards."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, ForeignKey, String, delete, event, insert, inspect, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from oncemq.ledger import schema
from oncemq.ledger.messages import outbox
from oncemq.ledger.sql.column_types import MYSQL_NAMES
from support.database.shared_database import drop_database


class Base(DeclarativeBase):
    """The tables of these programs."""


class Account(Base):
    """Rows that programs change; few, so that neighbours meet."""

    __tablename__ = "alone_accounts"
    name: Mapped[str] = mapped_column(String(20), primary_key=True)
    points: Mapped[int] = mapped_column(default=0)
    entries: Mapped[list["Entry"]] = relationship(
        back_populates="account", order_by="Entry.id", cascade="all, delete-orphan"
    )


class Entry(Base):
    """What belongs to an account; both sides know each other."""

    __tablename__ = "alone_entries"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(20), ForeignKey("alone_accounts.name"))
    message: Mapped[str] = mapped_column(String(20))
    account: Mapped[Account] = relationship(back_populates="entries")


class Versioned(Base):
    """Rows with SQLAlchemy's own version counter."""

    __tablename__ = "alone_versioned"
    name: Mapped[str] = mapped_column(String(20), primary_key=True)
    points: Mapped[int] = mapped_column(default=0)
    version: Mapped[int] = mapped_column()
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012 - SQLAlchemy's own form


class Line(Base):
    """What happened, in order."""

    __tablename__ = "alone_lines"
    id: Mapped[int] = mapped_column(primary_key=True)
    message: Mapped[str] = mapped_column(String(20))
    what: Mapped[str] = mapped_column(String(80))


class Order(Base):
    """Rows that strategies guard, and programs change, too."""

    __tablename__ = "alone_orders"
    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    state: Mapped[str | None] = mapped_column(String(20))
    version: Mapped[int | None] = mapped_column()


NAMES = ("n0", "n1", "n2", "n3")
KEYS = ("o0", "o1", "o2", "o3", "o4")
ELSEWHERE = "alone_elsewhere"
GUEST = "alone_guest"
_TABLES = (Line, Entry, Account, Versioned, Order)


def kind_of(session: Session) -> str:
    """Return the database's name; MariaDB and MySQL are one."""
    name = session.connection().dialect.name
    return "mysql" if name in MYSQL_NAMES else name


def elsewhere_of(engine: Engine) -> str:
    """Return the schema or database whose tables have the same names as ours."""
    return f"{engine.url.database}_{ELSEWHERE}" if engine.dialect.name in MYSQL_NAMES else ELSEWHERE


@contextmanager
def world(engine: Engine) -> Iterator[None]:
    """Give the database our tables, those of the same name elsewhere, and a role without rights on the ledger."""
    schema.create(engine, [outbox.TABLE])
    Base.metadata.create_all(engine)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _without_fsync)
        engine.dispose()
        yield
        return
    there, role = elsewhere_of(engine), f"{GUEST}_{uuid.uuid4().hex[:8]}"
    postgresql = engine.dialect.name == "postgresql"
    names = [
        name for name in inspect(engine).get_table_names() if name.startswith(("oncemq_", "alone_lines"))
    ]
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"CREATE {'SCHEMA' if postgresql else 'DATABASE'} {there}"))
        for name in names:
            like = f"(LIKE {name} INCLUDING ALL)" if postgresql else f"LIKE {name}"
            connection.execute(text(f"CREATE TABLE {there}.{name} {like}"))
        for statement in _on_postgresql(engine, role) if postgresql else _on_mysql(engine):
            connection.execute(text(statement))
    engine.dispose()
    try:
        yield
    finally:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            if postgresql:
                connection.execute(text(f"DROP OWNED BY {role}"))
                connection.execute(text(f"DROP ROLE {role}"))
            else:
                drop_database(connection, there)


def _on_postgresql(engine: Engine, role: str) -> Sequence[str]:
    return (
        f"CREATE ROLE {role}",
        f"GRANT USAGE ON SCHEMA public TO {role}",
        f"GRANT ALL ON alone_lines, alone_lines_id_seq TO {role}",
        f"CREATE TABLE alone_role AS SELECT '{role}'::text AS name",
        f"GRANT SELECT ON alone_role TO {role}",
        f"ALTER DATABASE {engine.url.database} SET synchronous_commit = off",
        (
            "CREATE FUNCTION alone_become(who text) RETURNS text LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM set_config('app.tenant', who, true); RETURN who; END $$"
        ),
        (
            "CREATE PROCEDURE alone_commits() LANGUAGE plpgsql AS "
            "$$ BEGIN UPDATE alone_accounts SET points = points WHERE name = 'taken'; COMMIT; END $$"
        ),
    )


def _on_mysql(engine: Engine) -> Sequence[str]:
    return (
        (
            "CREATE PROCEDURE alone_commits() "
            "BEGIN UPDATE alone_accounts SET points = points WHERE name = 'taken'; COMMIT; END"
        ),
        "CREATE PROCEDURE alone_defines() BEGIN CREATE TABLE IF NOT EXISTS alone_defined (id INT); END",
        (
            "CREATE FUNCTION alone_become(who VARCHAR(20)) RETURNS VARCHAR(20) NOT DETERMINISTIC NO SQL "
            "BEGIN SET @tenant = who; RETURN who; END"
        ),
    )


def _without_fsync(connection: Any, _: Any) -> None:
    connection.execute("PRAGMA synchronous = OFF").fetchall()


def empty(engine: Engine) -> None:
    """Bring the tables to their first state."""
    with engine.begin() as connection:
        for table in _TABLES:
            connection.execute(delete(table))
        connection.execute(delete(outbox.TABLE))
        if engine.dialect.name != "sqlite":
            connection.execute(text(f"DELETE FROM {elsewhere_of(engine)}.alone_lines"))
        connection.execute(insert(Account), [{"name": name, "points": 1} for name in ("n0", "n1", "taken")])
        connection.execute(
            insert(Versioned), [{"name": name, "points": 1, "version": 1} for name in ("n0", "n1", "n2")]
        )
        rows = [{"id": key, "state": "created", "version": 1} for key in KEYS[:3]]
        connection.execute(insert(Order), rows)


def seen(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    """Return what is in the tables, and in the outbox, in its order where it has one."""
    queries = {
        "lines": select(Line.message, Line.what).order_by(Line.id),
        "entries": select(Entry.name, Entry.message).order_by(Entry.id),
        "accounts": select(Account.name, Account.points).order_by(Account.name),
        "versioned": select(Versioned.name, Versioned.points, Versioned.version).order_by(Versioned.name),
        "orders": select(Order.id, Order.state, Order.version).order_by(Order.id),
        "published": select(outbox.TABLE.c.topic, outbox.TABLE.c.body).order_by(outbox.TABLE.c.id),
    }
    if engine.dialect.name != "sqlite":
        there = f"SELECT message, what FROM {elsewhere_of(engine)}.alone_lines ORDER BY id"
        queries["elsewhere"] = text(there)  # type: ignore[assignment]
    with engine.connect() as connection:
        return {name: [tuple(row) for row in connection.execute(query)] for name, query in queries.items()}
