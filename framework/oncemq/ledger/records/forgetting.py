"""Finds and deletes the records by which messages count as applied, so that they run when they come again."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Column, Connection, Table, and_, bindparam, delete, or_, select

from oncemq.errors import LedgerError
from oncemq.ledger.records import claims, final_failures, key_fingerprints, processed, sequences, states

BATCH: Final = 500
"""Records in one transaction."""


class Record(NamedTuple):
    """A record that keeps a message, or a place of a key, from being reached again.

    Args:
        table: the ledger table.
        identity: of the message; empty if the record is about the whole key.
        key: the business key.
        value: the claim's state, the key's state or number; empty for an applied message.
        at: when it was written; None for a claim that is not done.
    """

    table: str
    identity: str
    key: str
    value: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Choice:
    """Selection of records.

    Args:
        keys: only of these business keys; empty = of all.
        since: only those written at this time or later, aware.
        until: only those written before, aware.
        places: also the states and numbers that the keys have reached, whenever they were written.
    """

    keys: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    places: bool = False


@dataclass(frozen=True, slots=True)
class _Kind:
    """A table with records: of one message each, or of one key each.

    Args:
        table: the table.
        at: the column with the time of writing.
        value: the column with a state or number.
    """

    table: Table
    at: str
    value: str | None = None
    subject: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "subject", "identity" if "identity" in self.table.c else "key")

    def of(self, connection: Connection, scope: str, choice: Choice, limit: int) -> list[Record]:
        """Return the chosen records; of named keys also claims that are not done, whatever the time."""
        columns, at = self.table.c, self.table.c[self.at]
        found = select(*self._columns()).where(columns.consumer == scope)
        written = [at >= choice.since] if choice.since is not None else []
        if choice.until is not None and self.subject == "identity":
            written.append(at < choice.until)
        if choice.keys:
            found = found.where(columns.key.in_(sorted(choice.keys)))
            if written and at.nullable:
                written = [or_(and_(*written), at.is_(None))]
        rows = connection.execute(found.where(*written).order_by(at, columns[self.subject]).limit(limit))
        return [self._record(row._mapping) for row in rows]

    def delete(self, connection: Connection, scope: str, records: Sequence[Record]) -> int:
        """Delete those that are as they were when they were read; returns their number."""
        columns = self.table.c
        compared = {self.subject: "subject", self.at: "written"}
        if self.value is not None:
            compared[self.value] = "held"
        unchanged = [columns[name] == bindparam(parameter) for name, parameter in compared.items()]
        rows = [
            {"subject": record.identity or record.key, "written": record.at, "held": record.value}
            for record in records
        ]
        statement = delete(self.table).where(columns.consumer == scope, *unchanged)
        return connection.execute(statement, rows).rowcount if rows else 0

    def _columns(self) -> list[Column[Any]]:
        names = {self.subject: None, "key": None, self.at: None}
        if self.value is not None:
            names[self.value] = None
        return [self.table.c[name] for name in names]

    def _record(self, row: Mapping[Any, Any]) -> Record:
        identity = row["identity"] if self.subject == "identity" else ""
        value = row[self.value] if self.value is not None else ""
        return Record(self.table.name, identity, row["key"], value, row[self.at])


_OF_MESSAGES = (
    _Kind(processed.TABLE, "processed_at"),
    _Kind(final_failures.TABLE, "at", "code"),
    _Kind(claims.TABLE, "done_at", "state"),
)
_OF_KEYS = (
    _Kind(states.TABLE, "changed_at", "state"),
    _Kind(sequences.TABLE, "moved_at", "last"),
    _Kind(key_fingerprints.TABLE, "taken_at", "place"),
)
_KINDS = {kind.table.name: kind for kind in (*_OF_MESSAGES, *_OF_KEYS)}

ABOUT_KEYS = frozenset(kind.table.name for kind in _OF_KEYS)
"""Tables that know only what a key has reached."""


def find(connection: Connection, scope: str, choice: Choice, limit: int = BATCH) -> list[Record]:
    """Return a consumer's chosen records, of each table at most `limit`, oldest first."""
    kinds = (*_OF_MESSAGES, *_OF_KEYS) if choice.places else _OF_MESSAGES
    return [record for kind in kinds for record in kind.of(connection, scope, choice, limit)]


def unfinished(records: Collection[Record]) -> list[Record]:
    """Return those of messages that are being worked on, or whose outcome is unknown."""
    return [
        record
        for record in records
        if record.table == claims.TABLE.name and record.value != claims.State.DONE
    ]


def remove(connection: Connection, scope: str, records: Sequence[Record]) -> None:
    """Delete records in the order of their table and subject, as other transactions lock them.

    Raises:
        LedgerError: one of them has changed since it was read; the transaction must be rolled back.
    """
    for name, kind in _KINDS.items():
        mine = sorted((record for record in records if record.table == name), key=lambda record: record[1:3])
        if kind.delete(connection, scope, mine) != len(mine):
            raise LedgerError(
                f"a record of {scope} in {name} has changed meanwhile: a message of it is running; nothing of this "
                "step was deleted. Look again, and stop the app if it happens again"
            )
