"""Positions of the instances of broadcast consumers, and which process is an instance."""

import os
import socket
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final
from uuid import uuid4

from sqlalchemy import BigInteger, Column, ColumnElement, Connection, Engine, delete, select

from oncemq.common.clock import Clock
from oncemq.common.error_text import describe
from oncemq.contracts.broadcast import QueuePlace
from oncemq.errors import BrokerUnavailable
from oncemq.ledger.coordination import leases
from oncemq.ledger.database.server_clock import server_moment
from oncemq.ledger.sql.column_types import ExactText
from oncemq.ledger.sql.tables import CONSUMER_SIZE, ledger_table
from oncemq.ledger.sql.upsert import upsert

LEASE: Final = timedelta(seconds=6)
"""How long after its death another process of the instance takes over; renewed several times in that."""
AT: Final = "@"
"""Between the consumer and the instance in a ledger scope."""
_PREFIX: Final = "instance "
_HOST_SIZE: Final = 40

TABLE = ledger_table(
    "broadcast_positions",
    Column("consumer", ExactText(CONSUMER_SIZE), primary_key=True),
    Column("topic", ExactText(CONSUMER_SIZE), primary_key=True),
    Column("queue", ExactText(CONSUMER_SIZE), primary_key=True),
    Column("position", BigInteger, nullable=False),
)
_T = TABLE.c


def consumer_of(scope: str) -> str:
    """Return `app.consumer` of the scope of an instance, or of any other."""
    return scope.partition(AT)[0]


class LedgerPositions:
    """How far one instance of a consumer has read.

    Args:
        scope: its ledger scope, `app.consumer@instance`.
        engine: the app's database.
        clock: the source of time.
    """

    def __init__(self, scope: str, engine: Engine, clock: Clock) -> None:
        self._scope = scope
        self._engine = engine
        self._clock = clock
        host = socket.gethostname()[:_HOST_SIZE]
        self._owner = f"{host}/{os.getpid()}/{uuid4().hex[:8]}"

    def hold(self) -> str:
        """Be the one process of this instance for some seconds more; returns who is it instead, and nothing if we are."""
        try:
            with self._engine.begin() as connection:
                if self._hold(connection):
                    return ""
                table = leases.TABLE.c
                owner = connection.scalar(select(table.owner).where(table.name == _PREFIX + self._scope))
        except Exception as error:
            raise _away(error) from error
        return str(owner or "another process")

    def leave(self) -> None:
        """Let another process of the instance go on at once."""
        try:
            with self._engine.begin() as connection:
                leases.end(connection, _PREFIX + self._scope, self._owner, at=self._clock.now())
        except Exception as error:
            raise _away(error) from error

    def read(self, topic: str) -> Mapping[str, int]:
        """Return the position in each queue of a topic; empty for an instance that was never there."""
        rows = select(_T.queue, _T.position).where(_T.consumer == self._scope, _T.topic == topic)
        try:
            with self._engine.connect() as connection:
                return {row.queue: row.position for row in connection.execute(rows)}
        except Exception as error:
            raise _away(error) from error

    def write(self, positions: Mapping[QueuePlace, int]) -> bool:
        """Store positions, all or none; returns whether we are the process of this instance, else none is stored."""
        try:
            with self._engine.begin() as connection:
                if not self._hold(connection):
                    return False
                for (topic, queue), position in sorted(positions.items()):
                    row = {"consumer": self._scope, "topic": topic, "queue": queue, "position": position}
                    upsert(connection, TABLE, row, {"position": position})
        except Exception as error:
            raise _away(error) from error
        return True

    def _hold(self, connection: Connection) -> bool:
        now = self._clock.now()
        return leases.acquire(connection, _PREFIX + self._scope, self._owner, now=now, until=now + LEASE)


def instances(connection: Connection, consumer: str) -> Mapping[str, datetime]:
    """Return the scopes of the instances of a consumer that have run, and until when each was known to.

    Args:
        connection: for reading.
        consumer: `app.consumer`.
    """
    table = leases.TABLE.c
    rows = select(table.name, table.until).where(_of(consumer)).order_by(table.name)
    return {name.removeprefix(_PREFIX): until for name, until in connection.execute(rows)}


def gone(connection: Connection, consumer: str, before: datetime, keep: timedelta) -> list[str]:
    """Return the scopes of a consumer's instances that have not run since a moment, by our clock and by the database's."""
    table = leases.TABLE.c
    old = (table.until < before) & (table.until < server_moment(connection.dialect, keep))
    rows = select(table.name).where(_of(consumer), old).order_by(table.name)
    return [name.removeprefix(_PREFIX) for name in connection.scalars(rows)]


def forget(connection: Connection, scope: str, before: datetime) -> bool:
    """Delete that an instance ever ran, and its positions, if it has not run since a moment; returns whether it had not."""
    table = leases.TABLE.c
    ended = delete(leases.TABLE).where(table.name == _PREFIX + scope, table.until < before)
    if connection.execute(ended).rowcount == 0:
        return False
    connection.execute(delete(TABLE).where(_T.consumer == scope))
    return True


def _of(consumer: str) -> ColumnElement[bool]:
    """Return the condition for the leases of a consumer's instances, which an index answers."""
    name, first = leases.TABLE.c.name, f"{_PREFIX}{consumer}"
    return (name >= first + AT) & (name < first + chr(ord(AT) + 1))


def _away(error: Exception) -> BrokerUnavailable:
    # As for an unavailable broker: the caller tries again.
    return BrokerUnavailable(
        f"the ledger, which keeps how far this instance has read, does not answer: {describe(error)}"
    )
