"""Consumers that are paused in every process of an app: by an operator, until resumed, or by a breaker, for a time."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Column, Connection, String, delete, or_, select

from oncemq.ledger.database.server_clock import server_moment
from oncemq.ledger.records.audit import MAX_TEXT, WHO_SIZE
from oncemq.ledger.sql.column_types import ExactText, LongText, Moment, storable
from oncemq.ledger.sql.tables import CONSUMER_SIZE, ledger_table
from oncemq.ledger.sql.upsert import upsert

OPERATOR, BREAKER = "operator", "breaker"
"""Kinds of pauses; a consumer may have one of each, and neither ends the other."""

TABLE = ledger_table(
    "pauses",
    Column("consumer", ExactText(CONSUMER_SIZE), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("who", ExactText(WHO_SIZE), nullable=False),
    Column("why", LongText, nullable=False),
    Column("since", Moment, nullable=False),
    Column("until", Moment),
)


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause that is in force.

    Args:
        consumer: the ledger scope, `app.consumer`.
        kind: `operator` or `breaker`.
        who: the operator, or the breaker's name.
        why: the reason given; may be empty.
        since: when it began, aware.
        until: when it ends by itself, aware; None = when it is resumed.
    """

    consumer: str
    kind: str
    who: str
    why: str
    since: datetime
    until: datetime | None = None

    def __str__(self) -> str:
        who = f"breaker {self.who}" if self.kind == BREAKER else self.who
        lasts = f" until {_text(self.until)}" if self.until is not None else ""
        return f"by {who} since {_text(self.since)}{lasts}" + (f": {self.why}" if self.why else "")


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def begin(connection: Connection, pause: Pause) -> None:
    """Pause a consumer; one that has a pause of this kind gets the new one's reason and keeps its beginning."""
    changed = {
        "who": storable(pause.who, WHO_SIZE),
        "why": storable(pause.why, MAX_TEXT),
        "until": pause.until,
    }
    key = {"consumer": pause.consumer, "kind": pause.kind}
    upsert(connection, TABLE, {**key, **changed, "since": pause.since}, changed)


def begin_or_lengthen(connection: Connection, pause: Pause) -> None:
    """Pause a consumer until a time; a pause of this kind that lasts longer stays as it is, one that has ended is replaced."""
    c = TABLE.c
    same = (c.consumer == pause.consumer) & (c.kind == pause.kind)
    connection.execute(delete(TABLE).where(same, c.until <= server_moment(connection.dialect)))
    longer = connection.execute(select(c.until).where(same, or_(c.until.is_(None), c.until >= pause.until)))
    if longer.first() is None:
        begin(connection, pause)


def end(connection: Connection, consumer: str, kind: str) -> bool:
    """End a consumer's pause of this kind; returns whether there was one."""
    ours = (TABLE.c.consumer == consumer) & (TABLE.c.kind == kind)
    return connection.execute(delete(TABLE).where(ours)).rowcount > 0


def of(connection: Connection, consumers: Collection[str]) -> dict[str, tuple[Pause, ...]]:
    """Return the pauses in force of these ledger scopes, an operator's before a breaker's."""
    c = TABLE.c
    lasting = or_(c.until.is_(None), c.until > server_moment(connection.dialect))
    rows = select(c.consumer, c.kind, c.who, c.why, c.since, c.until)
    rows = rows.where(c.consumer.in_(sorted(consumers)), lasting).order_by(c.consumer, c.kind.desc())
    found: dict[str, tuple[Pause, ...]] = {}
    for row in connection.execute(rows):
        pause = Pause(*row)
        found[pause.consumer] = (*found.get(pause.consumer, ()), pause)
    return found
