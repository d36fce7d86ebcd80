"""Processes of `oncemq run`, and requests of operators that all of an app's take over their changed configuration."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Identity,
    Index,
    Integer,
    String,
    delete,
    insert,
    select,
    update,
)

from oncemq.ledger.database.server_clock import server_moment, server_time
from oncemq.ledger.records.audit import MAX_TEXT, WHO_SIZE
from oncemq.ledger.records.configurations import VERSION_SIZE
from oncemq.ledger.sql.column_types import ExactText, LongText, Moment, storable
from oncemq.ledger.sql.tables import CONSUMER_SIZE, ledger_table
from oncemq.ledger.sql.upsert import upsert

SILENT_AFTER: Final = timedelta(seconds=60)
"""A process that was not seen for so long has died, or does not reach the ledger: nothing waits for it."""
_FORGOTTEN_AFTER: Final = timedelta(hours=1)
_KEPT_REQUESTS: Final = 100

REQUESTS = ledger_table(
    "reloads",
    Column(
        "id", BigInteger().with_variant(Integer(), "sqlite"), Identity(), primary_key=True, autoincrement=True
    ),
    Column("app", ExactText(CONSUMER_SIZE), nullable=False),
    Column("who", ExactText(WHO_SIZE), nullable=False),
    Column("why", LongText, nullable=False),
    Column("asked_at", Moment, nullable=False),
    Index("oncemq_reloads_app", "app", "id"),
    sqlite_autoincrement=True,
)
"""One row for each `oncemq reload`; processes obey the latest, and answer in the history of configurations."""

SUPERVISORS = ledger_table(
    "supervisors",
    Column("app", ExactText(CONSUMER_SIZE), primary_key=True),
    Column("process", ExactText(CONSUMER_SIZE), primary_key=True),
    Column("host", ExactText(CONSUMER_SIZE), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("version", String(VERSION_SIZE), nullable=False),
    Column("started_at", Moment, nullable=False),
    Column("seen_at", Moment, nullable=False),
)
"""One row for each `oncemq run`."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request to reload.

    Args:
        number: later requests have larger ones.
        who: the operator.
        why: the reason given; may be empty.
        asked_at: when, aware, by the database's clock.
    """

    number: int
    who: str
    why: str
    asked_at: datetime


@dataclass(frozen=True, slots=True)
class Supervisor:
    """A process of `oncemq run` that has not signed off.

    Args:
        process: its name, unique in the app.
        host: the machine's name.
        pid: its process id there.
        version: of the configuration that it runs.
        started_at: when it started, aware.
        seen_at: when it was last seen, aware.
        silent: it was not seen for long.
    """

    process: str
    host: str
    pid: int
    version: str
    started_at: datetime
    seen_at: datetime
    silent: bool


def ask(connection: Connection, app: str, who: str, why: str) -> int:
    """Ask all processes of an app to reload; returns the request's number."""
    row = {"app": app, "who": storable(who, WHO_SIZE), "why": storable(why, MAX_TEXT)}
    key = connection.execute(insert(REQUESTS).values(asked_at=server_moment(connection.dialect), **row))
    (number,) = key.inserted_primary_key or (0,)
    c = REQUESTS.c
    older = select(c.id).where(c.app == app).order_by(c.id.desc()).offset(_KEPT_REQUESTS).limit(1)
    last = connection.scalar(older)
    if last is not None:
        connection.execute(delete(REQUESTS).where(c.app == app, c.id <= last))
    return int(number)


def latest(connection: Connection, app: str) -> Request | None:
    """Return the latest request; None if there was none."""
    c = REQUESTS.c
    rows = select(c.id, c.who, c.why, c.asked_at).where(c.app == app).order_by(c.id.desc()).limit(1)
    row = connection.execute(rows).first()
    return None if row is None else Request(*row)


def sign_on(connection: Connection, app: str, process: str, host: str, pid: int, version: str) -> None:
    """Record that a process runs; those that were not seen for an hour are removed."""
    now, c = server_time(connection), SUPERVISORS.c
    changed = {"host": host, "pid": pid, "version": version, "started_at": now, "seen_at": now}
    upsert(connection, SUPERVISORS, {"app": app, "process": process, **changed}, changed)
    connection.execute(delete(SUPERVISORS).where(c.app == app, c.seen_at < now - _FORGOTTEN_AFTER))


def seen(connection: Connection, app: str, process: str, version: str) -> bool:
    """Record that a process still runs, and what; returns whether it is signed on."""
    c = SUPERVISORS.c
    ours = update(SUPERVISORS).where(c.app == app, c.process == process)
    changed = {"seen_at": server_moment(connection.dialect), "version": version}
    return connection.execute(ours.values(**changed)).rowcount > 0


def sign_off(connection: Connection, app: str, process: str) -> None:
    """Record that a process ends."""
    c = SUPERVISORS.c
    connection.execute(delete(SUPERVISORS).where(c.app == app, c.process == process))


def supervisors(connection: Connection, app: str) -> list[Supervisor]:
    """Return the processes of an app that have not signed off, by host and start."""
    c = SUPERVISORS.c
    rows = select(c.process, c.host, c.pid, c.version, c.started_at, c.seen_at).where(c.app == app)
    found = connection.execute(rows.order_by(c.host, c.started_at, c.process)).all()
    silent = server_time(connection) - SILENT_AFTER
    return [Supervisor(*row, row.seen_at < silent) for row in found]
