"""Option `fingerprint` of strategies that compare places: a second message for a place must have the same content."""

from collections.abc import Sequence
from typing import Self

from sqlalchemy import Connection, Table

from oncemq.common.clock import Clock
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import DUPLICATE_IN_DATABASE, PROCEED, Verdict, conflict
from oncemq.ledger.records import key_fingerprints
from oncemq.ledger.sql.bulk import Bulk, Shape
from oncemq.ledger.sql.bulk_dialects import bulk_for
from oncemq_strategies.common.fingerprint import Fingerprint, fingerprint_option
from oncemq_strategies.common.options import Options


class _Notes:
    """State of one run.

    Attributes:
        known: place and fingerprint by key, changes of this run included.
        prints: the fingerprint of each item that may run; its handler may change the payload.
        changed: keys whose place was taken in this run.
    """

    __slots__ = ("changed", "known", "prints")

    def __init__(self, known: dict[str, tuple[str, str]]) -> None:
        self.known = known
        self.prints: dict[Item, str] = {}
        self.changed: set[str] = set()


class KeyFingerprints:
    """The ledger's table `oncemq_place_prints`; the strategy's own lock on the key protects its rows.

    Args:
        clock: the time source.
        fingerprint: of an item; None = content is not compared.
    """

    def __init__(self, clock: Clock, fingerprint: Fingerprint | None) -> None:
        self._clock = clock
        self._fingerprint = fingerprint
        self._bulk: Bulk | None = None

    @classmethod
    def of(cls, given: Options, clock: Clock) -> Self:
        """Read the option `fingerprint`."""
        return cls(clock, fingerprint_option(given))

    def tables(self) -> Sequence[Table]:
        """Return the table, if it is needed."""
        return () if self._fingerprint is None else (key_fingerprints.TABLE,)

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Read the stored place of every key; after the places, so that a place which is not newer is compared."""
        if self._fingerprint is None:
            return
        keys = sorted({item.key for item in items})
        rows = self._statements(run.connection).read(run.connection, run.consumer, keys)
        run.notes[self] = _Notes({key: (place or "", text or "") for key, (place, text) in rows.items()})

    def may_run(self, run: Run, item: Item) -> Verdict:
        """Return PROCEED, and keep the content from before the handler."""
        if self._fingerprint is not None:
            notes: _Notes = run.notes[self]
            notes.prints[item] = self._fingerprint(item)
        return PROCEED

    def same(self, run: Run, item: Item, place: object) -> Verdict:
        """Return the verdict on a second message for a place: a Duplicate, or a Conflict if its content differs."""
        if self._fingerprint is None:
            return DUPLICATE_IN_DATABASE
        notes: _Notes = run.notes[self]
        known = notes.known.get(item.key)
        if known is None or known[0] != str(place) or known[1] == self._fingerprint(item):
            return DUPLICATE_IN_DATABASE
        return conflict(
            f"{place} of key {item.key!r} was reached before by other content: the fields of `fingerprint` differ"
        )

    def took(self, run: Run, item: Item, place: object) -> None:
        """Note whose content is at the key's place."""
        if self._fingerprint is None:
            return
        notes: _Notes = run.notes[self]
        text = notes.prints.get(item)
        if text is not None:
            notes.known[item.key] = (str(place), text)
            notes.changed.add(item.key)

    def save(self, run: Run) -> None:
        """Write the noted changes."""
        if self._fingerprint is None:
            return
        notes: _Notes = run.notes[self]
        rows = [(key, *notes.known[key]) for key in sorted(notes.changed)]
        if not rows:
            return
        bulk, now = self._statements(run.connection), self._clock.now()
        new = bulk.insert_new(run.connection, run.consumer, rows, now)
        there = [row for row in rows if row[0] not in new]
        if there:
            bulk.update(run.connection, run.consumer, there, now)

    def _statements(self, connection: Connection) -> Bulk:
        if self._bulk is None:
            columns = ("place", "fingerprint")
            shape = Shape(
                key_fingerprints.TABLE,
                "key",
                "taken_at",
                inserted=columns,
                updated=columns,
                read=columns,
                touches=True,
            )
            self._bulk = bulk_for(connection.dialect, shape)
        return self._bulk
