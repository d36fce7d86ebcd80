"""Record-and-check: one ledger row per identity, inserted in the handler's transaction before the handler runs."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import Connection

from oncemq.common.clock import Clock
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import (
    DUPLICATE_IN_DATABASE,
    DUPLICATE_IN_UNIT,
    PROCEED,
    Culprits,
    Verdict,
    conflict,
    reject,
)
from oncemq.errors import InfrastructureError
from oncemq.ledger.generations.bulk import processed_bulk
from oncemq.ledger.records import processed
from oncemq.ledger.sql.bulk import Bulk, Shape
from oncemq_strategies.common.fingerprint import Fingerprint
from oncemq_strategies.common.results import stored


@dataclass(frozen=True, slots=True)
class Known:
    """Identities that have a row after a commit, each with its fingerprint; empty where none is compared.

    Args:
        new: those that this run inserted.
        there: those that existed before.
    """

    new: Mapping[str, str]
    there: Mapping[str, str]


class Elsewhere(Protocol):
    """Records of another deduplicator."""

    def seen(self, run: Run, items: Iterable[Item]) -> Mapping[str, Verdict]:
        """Return a verdict for each identity that was applied there: a duplicate; or that must not run for now."""
        ...


class _Notes:
    """State of one run.

    Attributes:
        new: identities whose row this run inserted.
        done: those whose message is final in this run, with that message.
        there: those that existed before.
        elsewhere: the verdicts on those that another deduplicator knows.
        lost: fingerprint and result stored for those; only where details are needed.
        inserted: the fingerprint that each new row was inserted with.
        prints: the fingerprint of each item that may run.
    """

    __slots__ = ("done", "elsewhere", "inserted", "lost", "new", "prints", "there")

    def __init__(self, new: set[str]) -> None:
        self.new = new
        self.there: list[str] = []
        self.elsewhere: Mapping[str, Verdict] = {}
        self.done: dict[str, Item] = {}
        self.lost: dict[str, Sequence[str | None]] = {}
        self.inserted: dict[str, str] = {}
        self.prints: dict[str, str] = {}

    def applied_elsewhere(self) -> Iterator[str]:
        """Yield the identities whose row stays because another deduplicator has applied them."""
        return (identity for identity, verdict in self.elsewhere.items() if verdict.final)


class ProcessedRecords:
    """The ledger's table `oncemq_processed`, or the consumer's generations, as the authority.

    Args:
        clock: the time source.
        fingerprint: of an item; None = content is not compared.
        result: keep the handler's result.
        generations: the records are in generations.
        elsewhere: what else counts; such a message is a duplicate, and gets its row here.
    """

    def __init__(
        self,
        clock: Clock,
        fingerprint: Fingerprint | None,
        *,
        result: bool,
        generations: bool = False,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._clock = clock
        self._generations = generations
        self._elsewhere = elsewhere
        self._fingerprint = fingerprint
        self._result = result
        self._details = result or fingerprint is not None
        self._bulk: Bulk | None = None

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Insert a row for every identity; the message that inserted it first may run."""
        first: dict[str, Item] = {}
        for item in items:
            first.setdefault(item.envelope.identity, item)
        identities = sorted(first)
        inserted: dict[str, str] = {}
        rows: list[tuple[str | None, ...]]
        if self._fingerprint is None:
            rows = [(identity, first[identity].key) for identity in identities]
        else:
            inserted = {identity: self._fingerprint(item) for identity, item in first.items()}
            rows = [(identity, first[identity].key, inserted[identity]) for identity in identities]
        bulk = self._statements(run.connection)
        notes = _Notes(bulk.insert_new(run.connection, run.consumer, rows, self._clock.now()))
        notes.inserted = inserted
        run.notes[self] = notes
        if len(notes.new) < len(identities):
            notes.there = [identity for identity in identities if identity not in notes.new]
            if self._details:
                self._read_losers(run, notes)
        if self._elsewhere is not None and notes.new:
            new = [item for item in items if item.envelope.identity in notes.new]
            notes.elsewhere = self._elsewhere.seen(run, new)

    def decide(self, run: Run, item: Item) -> Verdict:
        """Return PROCEED for identities that have not been applied yet."""
        notes: _Notes = run.notes[self]
        identity = item.envelope.identity
        if identity in notes.elsewhere:
            return notes.elsewhere[identity]
        if identity in notes.new and identity not in notes.done:
            if self._fingerprint is not None:
                notes.prints[identity] = self._fingerprint(item)
            return PROCEED
        if self._details:
            return self._duplicate(notes, item, identity)
        return DUPLICATE_IN_UNIT if identity in notes.done else DUPLICATE_IN_DATABASE

    def record(self, run: Run, item: Item) -> None:
        """Remember the message of the identity; a later copy in this run is its duplicate.

        Messages that another strategy settled without effect leave no record: an earlier copy may have been tried, and
        would be taken for an applied one.
        """
        notes: _Notes = run.notes[self]
        identity = item.envelope.identity
        if item.verdict is PROCEED and identity in notes.new and identity not in notes.done:
            notes.done[identity] = item

    def save(self, run: Run) -> None:
        """Delete the rows of messages that are not final; store fingerprint and result of those that ran."""
        notes: _Notes = run.notes[self]
        bulk = self._statements(run.connection)
        if len(notes.done) < len(notes.new):
            undone = notes.new.difference(notes.done, notes.applied_elsewhere())
            if undone:
                bulk.delete(run.connection, run.consumer, sorted(undone))
        if self._details and notes.done:
            changed = self._changed(notes)
            if changed:
                bulk.update(run.connection, run.consumer, changed, self._clock.now())

    def known(self, run: Run) -> Known:
        """Return which identities have their row after the run's commit."""
        notes: _Notes = run.notes[self]
        prints, lost = notes.prints, notes.lost
        return Known(
            {identity: prints.get(identity, "") for identity in notes.done},
            {identity: (lost[identity][0] or "") if lost else "" for identity in notes.there},
        )

    def _read_losers(self, run: Run, notes: _Notes) -> None:
        notes.lost = self._statements(run.connection).read(run.connection, run.consumer, notes.there)
        if len(notes.lost) < len(notes.there):
            raise InfrastructureError(
                f"{run.consumer}: a dedup record was purged between two statements; run again"
            )

    def _duplicate(self, notes: _Notes, item: Item, identity: str) -> Verdict:
        ran = notes.done.get(identity)
        print_, result = notes.lost[identity] if ran is None else (notes.prints.get(identity), None)
        if self._fingerprint is not None and print_ is not None and print_ != self._fingerprint(item):
            return other_content(identity, item.key)
        if ran is not None:
            item.result = ran.result
        elif result is not None:
            item.result = json.loads(result)
        return DUPLICATE_IN_DATABASE if ran is None else DUPLICATE_IN_UNIT

    def _changed(self, notes: _Notes) -> list[tuple[str, str | None, str | None]]:
        """Return identity, fingerprint, result of the rows that must be updated after their insert."""
        changed: list[tuple[str, str | None, str | None]] = []
        culprits: dict[Any, Verdict] = {}
        for identity in sorted(notes.done):
            item, print_ = notes.done[identity], notes.prints.get(identity)
            result = None
            if self._result and item.verdict is PROCEED and item.result is not None:
                try:
                    result = stored(item.result)
                except ValueError as error:
                    culprits[item] = reject(f"the handler's result cannot be stored: {error}")
            if result is not None or print_ != notes.inserted.get(identity):
                changed.append((identity, print_, result))
        if culprits:
            raise Culprits(culprits)
        return changed

    def _statements(self, connection: Connection) -> Bulk:
        if self._bulk is None:
            more = ("key", "fingerprint") if self._fingerprint is not None else ("key",)
            details = ("fingerprint", "result")
            shape = Shape(
                processed.TABLE, "identity", "processed_at", inserted=more, updated=details, read=details
            )
            self._bulk = processed_bulk(
                connection.dialect, shape, self._clock.monotonic, generations=self._generations
            )
        return self._bulk


def other_content(identity: str, key: str) -> Verdict:
    """Return the verdict on a message whose identity was applied with another fingerprint."""
    return conflict(
        f"identity {identity!r} of key {key!r} was applied before with other content: the fields of "
        "`fingerprint` differ"
    )
