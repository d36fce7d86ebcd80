"""Messages that failed for good: `on_dead` runs once for each, and their handler never runs again.

The function's transaction inserts the record that `unique_key` and `tiered` insert before a handler, so it and a copy's
handler exclude each other, and beside it a row that says why the message is dead. A message that
has the row afterwards – redelivered because the process died before the dead letter was sent, or another copy – becomes a dead letter, and
nothing runs for it.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from sqlalchemy import MetaData, Table

from oncemq.common.clock import Clock
from oncemq.contracts.final_failure import FinalFailure
from oncemq.contracts.strategy import Strategy, Traits
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import PROCEED, Verdict, reject
from oncemq.ledger.generations.bulk import processed_bulk
from oncemq.ledger.records import final_failures, processed
from oncemq.ledger.sql.bulk import Bulk, Shape
from oncemq.ledger.sql.tables import attach

APPLIED, UNDONE = "applied-by-a-copy", "undone-before"
"""Codes by which `FinalRecord` says why the function does not run; they are on no dead letter."""


class FinalGuard(Strategy):
    """Dead-letters again what failed for good; the last step of the chain of a consumer with `on_dead`.

    It reads its rows after `unique_key` has waited for others that insert the same record, and is asked about duplicates, too.
    """

    traits: ClassVar[Traits] = Traits(decides=False, counts=True)
    name = "on_dead"
    by_identity = True

    def tables(self, metadata: MetaData) -> Sequence[Table]:
        """Return the table of final failures."""
        return (attach(final_failures.TABLE, metadata),)

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Read which of the messages failed for good."""
        run.notes[self] = final_failures.load(
            run.connection, run.consumer, (item.envelope.identity for item in items)
        )

    def decide(self, run: Run, item: Item) -> Verdict:
        """Return PROCEED, or Reject with the code and the reason of the failure."""
        found: Mapping[str, tuple[str, str]] = run.notes[self]
        if not found or item.envelope.identity not in found:
            return PROCEED
        code, reason = found[item.envelope.identity]
        return reject(reason, code=code)


class FinalRecord(Strategy):
    """Lets `on_dead` run once for an identity that was not applied; the only step before that function.

    Args:
        clock: the source of time.
        generations: the consumer's records are in generations.
    """

    traits: ClassVar[Traits] = Traits(decides=False)
    name = "on_dead"
    by_identity = True

    def __init__(self, clock: Clock, *, generations: bool = False) -> None:
        self._clock = clock
        self._generations = generations
        self._bulk: Bulk | None = None

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Insert the record of the one message; waits for a copy whose handler is running."""
        if self._bulk is None:
            shape = Shape(processed.TABLE, "identity", "processed_at", inserted=("key",))
            self._bulk = processed_bulk(
                run.connection.dialect, shape, self._clock.monotonic, generations=self._generations
            )
        rows = [(item.envelope.identity, item.key) for item in items]
        new = self._bulk.insert_new(run.connection, run.consumer, rows, self._clock.now())
        there = [identity for identity, _ in rows if identity not in new]
        undone = final_failures.load(run.connection, run.consumer, there) if there else {}
        run.notes[self] = new, undone

    def decide(self, run: Run, item: Item) -> Verdict:
        """Return PROCEED, or a Reject with the code APPLIED or UNDONE."""
        new, undone = run.notes[self]
        if item.envelope.identity in new:
            return PROCEED
        return reject("", code=UNDONE if item.envelope.identity in undone else APPLIED)

    def save(self, run: Run) -> None:
        """Store why the message failed, or remove the record: the function has failed."""
        new, _ = run.notes[self]
        for item in run.items:
            identity = item.envelope.identity
            if item.verdict is PROCEED:
                failure: FinalFailure = run.unit.notes[FinalFailure]
                final_failures.add(
                    run.connection,
                    run.consumer,
                    identity,
                    item.key,
                    failure.code,
                    failure.error,
                    self._clock.now(),
                )
            elif identity in new and self._bulk is not None:
                self._bulk.delete(run.connection, run.consumer, [identity])
