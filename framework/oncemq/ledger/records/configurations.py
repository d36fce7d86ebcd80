"""Configurations that an app has run, or was to run: their texts without secrets, and who took them over or refused them, where."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Identity,
    Index,
    Integer,
    Select,
    String,
    delete,
    insert,
    select,
    update,
)

from oncemq.common.redaction import MaskedText
from oncemq.ledger.database.server_clock import server_moment
from oncemq.ledger.records.audit import MAX_TEXT, WHO_SIZE
from oncemq.ledger.sql.column_types import ExactText, LongText, Moment, storable
from oncemq.ledger.sql.tables import CONSUMER_SIZE, ledger_table

STARTED, TAKEN_OVER, REFUSED, GIVEN_UP = "started", "taken over", "refused", "given up"
"""What became of a configuration in a process. Given up: it was sound, but its first worker process did not become ready."""
START: Final = "start"
"""The occasion of a process's start; others are `SIGHUP` and `oncemq reload`."""
KEPT: Final = 100
"""So many configurations of an app that have run are kept."""
KEPT_REFUSED: Final = 20
"""So many configurations of an app that have never run are kept."""
KEPT_NOTES: Final = 1000
"""So many notes of an app are kept."""
VERSION_SIZE: Final = 32

_NUMBER = BigInteger().with_variant(Integer(), "sqlite")  # SQLite assigns numbers only to an INTEGER

TABLE = ledger_table(
    "configurations",
    Column("id", _NUMBER, Identity(), primary_key=True, autoincrement=True),
    Column("app", ExactText(CONSUMER_SIZE), nullable=False),
    Column("version", String(VERSION_SIZE), nullable=False),
    Column("texts", LongText, nullable=False),
    Column("ran", Boolean, nullable=False),
    Column("first_at", Moment, nullable=False),
    Column("last_at", Moment, nullable=False),
    Index("oncemq_configurations_version", "app", "version", unique=True),
    sqlite_autoincrement=True,
)
"""One row for each text that an app was started or reloaded with."""

NOTES = ledger_table(
    "configuration_notes",
    Column("id", _NUMBER, Identity(), primary_key=True, autoincrement=True),
    Column("app", ExactText(CONSUMER_SIZE), nullable=False),
    Column("configuration", BigInteger),
    Column("version", String(VERSION_SIZE), nullable=False),
    Column("host", ExactText(CONSUMER_SIZE), nullable=False),
    Column("process", ExactText(CONSUMER_SIZE), nullable=False),
    Column("occasion", String(32), nullable=False),
    Column("who", ExactText(WHO_SIZE), nullable=False),
    Column("why", LongText, nullable=False),
    Column("request", BigInteger),
    Column("outcome", String(16), nullable=False),
    Column("problems", LongText, nullable=False),
    Column("at", Moment, nullable=False),
    Column("times", Integer, nullable=False),
    Index("oncemq_configuration_notes_app", "app", "id"),
    Index("oncemq_configuration_notes_request", "app", "request"),
    sqlite_autoincrement=True,
)
"""One row for each start and each reload of a process; repeated starts with the same text are one row."""


@dataclass(frozen=True, slots=True)
class Note:
    """What became of a configuration in a process.

    Args:
        app: the app's name.
        version: of the configuration; empty where no file could be read.
        host: the machine's name.
        process: the name of the process, unique in the app.
        occasion: `start`, `SIGHUP` or `oncemq reload`.
        who: the person, as far as known.
        why: the reason given; may be empty.
        request: the number of the operator's request that it answers; None = it was not asked for there.
        outcome: `started`, `taken over`, `refused` or `given up`.
        problems: why it was refused, or given up.
        at: when, aware, by the database's clock, which fills it in; of several starts the latest.
        times: so many starts with the same text.
        configuration: its number, for `config diff` and `config rollback`; None = its text is not kept.
    """

    app: str
    version: str
    host: str
    process: str
    occasion: str
    who: str
    why: str = ""
    request: int | None = None
    outcome: str = STARTED
    problems: tuple[str, ...] = ()
    at: datetime | None = None
    times: int = 1
    configuration: int | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """A configuration that a process has begun to run.

    Args:
        version: of the configuration.
        configuration: its number; None = its text is not kept.
        host: the machine's name.
        process: the name of the process, of several starts that of the latest.
        occasion: `start`, `SIGHUP` or `oncemq reload`.
        who: the person, as far as known.
        at: when, aware; of several starts the latest.
        times: so many starts with the same text.
        first_at: when the text was first seen, aware; None = it is not kept.
    """

    version: str
    configuration: int | None
    host: str
    process: str
    occasion: str
    who: str
    at: datetime
    times: int
    first_at: datetime | None


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration whose text is kept.

    Args:
        number: what an operator calls it.
        version: of its text.
        ran: a process has run it.
        first_at: when it was first seen, aware.
        last_at: when it was last started or reloaded with, aware.
        texts: of its files, in order.
    """

    number: int
    version: str
    ran: bool
    first_at: datetime
    last_at: datetime
    texts: tuple[MaskedText, ...] = field(repr=False)


def add(connection: Connection, note: Note, texts: Sequence[MaskedText]) -> int | None:
    """Store what became of a configuration, and its text if it is new; returns its number. What exceeds the bounds goes.

    Two processes that store the same new text at once: the second fails by the index, and must try again.

    Args:
        connection: a transaction.
        note: what became of it.
        texts: of its files; none = the app is declared in Python, or no file could be read.
    """
    number = _number(connection, note, texts) if texts else None
    c = NOTES.c
    if note.occasion == START:
        latest = select(c.id, c.version, c.occasion).where(c.app == note.app, c.host == note.host)
        row = connection.execute(latest.order_by(c.id.desc()).limit(1)).first()
        if row is not None and (row.version, row.occasion) == (note.version, START):
            again = {"at": server_moment(connection.dialect), "times": c.times + 1, "process": note.process}
            connection.execute(update(NOTES).where(c.id == row.id).values(**again, who=_who(note)))
            return number
    key = connection.execute(insert(NOTES).values(at=server_moment(connection.dialect), **_row(note, number)))
    (latest_note,) = key.inserted_primary_key or (0,)
    _bound(connection, note.app, latest_note)
    return number


def notes(
    connection: Connection, app: str, limit: int, *, request: int | None = None, since: datetime | None = None
) -> list[Note]:
    """Return what became of an app's configurations, newest first.

    Args:
        connection: for reading.
        app: the app's name.
        limit: the most notes.
        request: only answers to this request or a later one.
        since: aware; only from then on.
    """
    c = NOTES.c
    found = select(NOTES).where(c.app == app)
    if request is not None:
        found = found.where(c.request >= request)
    if since is not None:
        found = found.where(c.at >= since)
    return [_note(row) for row in connection.execute(found.order_by(c.id.desc()).limit(limit))]


def loads(connection: Connection, app: str) -> list[Load]:
    """Return which configurations an app's processes have begun to run, oldest first, as far as the notes are kept."""
    c = NOTES.c
    first_at = select(TABLE.c.first_at).where(TABLE.c.app == app, TABLE.c.version == c.version)
    columns = (c.version, c.configuration, c.host, c.process, c.occasion, c.who, c.at, c.times)
    found = select(*columns, first_at.scalar_subquery().label("first_at"))
    ran = found.where(c.app == app, c.outcome.in_((STARTED, TAKEN_OVER)))
    return [Load(*row) for row in connection.execute(ran.order_by(c.id))]


def kept(connection: Connection, app: str) -> list[Configuration]:
    """Return the configurations whose texts are kept, newest first."""
    c = TABLE.c
    rows = _configurations().where(c.app == app).order_by(c.id.desc())
    return [_configuration(row) for row in connection.execute(rows)]


def _number(connection: Connection, note: Note, texts: Sequence[MaskedText]) -> int:
    c, now = TABLE.c, server_moment(connection.dialect)
    ran = note.outcome in {STARTED, TAKEN_OVER}
    known = select(c.id, c.ran).where(c.app == note.app, c.version == note.version)
    row = connection.execute(known).first()
    if row is not None:
        changed = {"last_at": now, "ran": ran or row.ran}
        connection.execute(update(TABLE).where(c.id == row.id).values(**changed))
        return int(row.id)
    words = json.dumps([[each.file, each.text, each.exact] for each in texts])
    new = {"app": note.app, "version": note.version, "texts": storable(words), "ran": ran}
    key = connection.execute(insert(TABLE).values(**new, first_at=now, last_at=now))
    (number,) = key.inserted_primary_key or (0,)
    for has_run, most in ((True, KEPT), (False, KEPT_REFUSED)):
        oldest = select(c.id).where(c.app == note.app, c.ran.is_(has_run))
        gone = connection.scalars(
            oldest.order_by(c.last_at.desc(), c.id.desc()).offset(most).limit(most)
        ).all()
        if gone:
            connection.execute(delete(TABLE).where(c.id.in_(gone)))
    return int(number)


def _bound(connection: Connection, app: str, latest: int) -> None:
    c = NOTES.c
    oldest = select(c.id).where(c.app == app, c.id <= latest).order_by(c.id.desc())
    last = connection.scalar(oldest.offset(KEPT_NOTES).limit(1))
    if last is not None:
        connection.execute(delete(NOTES).where(c.app == app, c.id <= last))


def _row(note: Note, number: int | None) -> dict[str, Any]:
    problems = json.dumps([storable(problem, MAX_TEXT) for problem in note.problems])
    return {
        "app": note.app,
        "configuration": number,
        "version": note.version,
        "host": note.host,
        "process": note.process,
        "occasion": note.occasion,
        "who": _who(note),
        "why": storable(note.why, MAX_TEXT),
        "request": note.request,
        "outcome": note.outcome,
        "problems": problems,
        "times": note.times,
    }


def _note(row: Any) -> Note:
    fields = {name: value for name, value in row._mapping.items() if name != "id"}
    return Note(**{**fields, "problems": tuple(json.loads(row.problems))})


def _who(note: Note) -> str:
    return storable(note.who, WHO_SIZE)


def _configurations() -> Select[Any]:
    c = TABLE.c
    return select(c.id, c.version, c.ran, c.first_at, c.last_at, c.texts)


def _configuration(row: Any) -> Configuration:
    texts = tuple(MaskedText(*each) for each in json.loads(row.texts))
    return Configuration(row.id, row.version, bool(row.ran), row.first_at, row.last_at, texts)
