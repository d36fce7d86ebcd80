"""Worker processes of an app and their machines, so that the next start notices a machine that vanished."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Column, Connection, Integer, delete, select, update

from oncemq.ledger.sql.column_types import ExactText, Moment
from oncemq.ledger.sql.tables import CONSUMER_SIZE, ledger_table
from oncemq.ledger.sql.upsert import upsert

TABLE = ledger_table(
    "workers",
    Column("app", ExactText(CONSUMER_SIZE), primary_key=True),
    Column("worker", ExactText(CONSUMER_SIZE), primary_key=True),
    Column("host", ExactText(CONSUMER_SIZE), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started_at", Moment, nullable=False),
    Column("seen_at", Moment, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that has not signed off.

    Args:
        worker: its name, unique in the app.
        host: the machine's name.
        pid: its process id there.
        started_at: when it started, aware.
        seen_at: its last heartbeat, aware.
    """

    worker: str
    host: str
    pid: int
    started_at: datetime
    seen_at: datetime


def started(connection: Connection, app: str, worker: str, host: str, pid: int, at: datetime) -> None:
    """Record that a process has started."""
    row = {"app": app, "worker": worker, "host": host, "pid": pid, "started_at": at, "seen_at": at}
    upsert(connection, TABLE, row, {name: row[name] for name in ("host", "pid", "started_at", "seen_at")})


def seen(connection: Connection, app: str, worker: str, at: datetime) -> None:
    """Record a heartbeat of a process."""
    ours = (TABLE.c.app == app) & (TABLE.c.worker == worker)
    connection.execute(update(TABLE).where(ours).values(seen_at=at))


def stopped(connection: Connection, app: str, workers: Collection[str]) -> None:
    """Delete processes that stopped cleanly, or whose end has been handled."""
    if workers:
        ours = (TABLE.c.app == app) & TABLE.c.worker.in_(sorted(workers))
        connection.execute(delete(TABLE).where(ours))


def unclean(
    connection: Connection, app: str, *, silent_since: datetime, host: str | None = None
) -> list[Worker]:
    """Return the processes that have not signed off and were last seen before `silent_since`.

    Pass their names to `stopped` once their messages are marked as suspects, so that this happens once.

    Args:
        connection: the ledger.
        app: the app's name.
        silent_since: aware; several heartbeats ago.
        host: restricts the result to this machine.
    """
    found = select(TABLE.c.worker, TABLE.c.host, TABLE.c.pid, TABLE.c.started_at, TABLE.c.seen_at).where(
        TABLE.c.app == app, TABLE.c.seen_at < silent_since
    )
    if host is not None:
        found = found.where(TABLE.c.host == host)
    return [Worker(*row) for row in connection.execute(found.order_by(TABLE.c.worker))]


def since_before(
    connection: Connection, app: str, started: datetime, *, seen_since: datetime
) -> list[Worker]:
    """Return the processes that started before a moment and have been seen since another, by host.

    Args:
        connection: the ledger.
        app: the app's name.
        started: aware.
        seen_since: aware; a few heartbeats ago.
    """
    c = TABLE.c
    found = select(c.worker, c.host, c.pid, c.started_at, c.seen_at)
    found = found.where(c.app == app, c.started_at < started, c.seen_at >= seen_since)
    return [Worker(*row) for row in connection.execute(found.order_by(c.host, c.pid))]
