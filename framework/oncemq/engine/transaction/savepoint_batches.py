"""Divides the items of one transaction into parts, each a run of its own with a savepoint before it.

A failure after writing rolls back its whole run. If failures are frequent, parts keep that cheap: the failing item's part
is rolled back to its savepoint and runs again without it; the parts before stay, and all are committed together.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import RETURNED, Culprits, Verdict
from oncemq.engine.base.error_verdicts import UnknownCulprit
from oncemq.engine.base.items import make_items, may_run
from oncemq.engine.crash.flight_recorder import AnyRecorder
from oncemq.engine.transaction.item_loop import ItemLoop
from oncemq.engine.transaction.open_transaction import OpenTransaction
from oncemq.engine.transaction.transaction_guard import HiddenCommit
from oncemq.engine.transaction.unit_savepoint import UnitSavepoint
from oncemq.message.envelope import Delivery
from oncemq.message.reader import Reader
from oncemq.retry.classify import is_unique_violation


def first_of_each_key(
    order: Iterable[Delivery], charged: Mapping[Delivery, Verdict]
) -> dict[Delivery, Verdict]:
    """Return the item that a failure is charged to: a later message of the key ran on data that an earlier one never reached.

    A message whose handler has committed must not run again, whatever came before it.
    """
    found: dict[Delivery, Verdict] = {}
    keys: set[str] = set()
    for delivery in order:
        verdict = charged.get(delivery)
        if verdict is not None and (delivery.key not in keys or isinstance(verdict.error, HiddenCommit)):
            found[delivery] = verdict
            keys.add(delivery.key)
    return found


def unproved(
    order: Sequence[Delivery], charged: Mapping[Delivery, Verdict], wrote: Container[Delivery] = ()
) -> int | None:
    """Return the place of a charged message whose failure may follow from what an earlier one did; None if there is none.

    A strategy may still refuse, when it saves, what an earlier handler of the run has done, and the failure with it. So the
    earlier ones are saved first. Of several that were charged together those count that have an earlier one of their key, or
    an earlier charged one whose handler has changed rows.
    """
    keys: set[str] = set()
    changed = False
    for at, delivery in enumerate(order):
        if delivery in charged:
            if at and (changed or len(charged) == 1 or delivery.key in keys):
                return at
            changed = changed or delivery in wrote
        keys.add(delivery.key)
    return None


def writers(items: Iterable[Item]) -> frozenset[Delivery]:
    """Return the deliveries whose handlers have changed rows."""
    return frozenset(item.delivery for item in items if item.wrote)


@dataclass(slots=True)
class TransactionResult:
    """The contents of one transaction.

    Attributes:
        runs: in order.
        left_out: items in none of them: those at fault, and those that must wait behind them.
        held: keys of which nothing more may run.
        undone: how often a part was rolled back to its savepoint.
        others_exclusive: another process's units are exclusive, so this one was, too.
    """

    runs: list[Run] = field(default_factory=list)
    left_out: dict[Delivery, Verdict] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    undone: int = 0
    others_exclusive: bool = False

    def add(self, run: Run) -> None:
        """Keep a run that stays."""
        self.runs.append(run)
        self.held.update(item.key for item in run.items if item.verdict is None or item.verdict.holds_key)

    def leave_out(
        self, deliveries: Sequence[Delivery], verdicts: Mapping[Delivery, Verdict], held: Collection[str]
    ) -> list[Delivery]:
        """Return items that may run; those with a verdict, and those behind a key that is held before them, are left out."""
        ready, left_out = may_run(deliveries, verdicts, held)
        self.left_out.update({**left_out, **verdicts})
        self.held.update(delivery.key for delivery, verdict in left_out.items() if verdict.holds_key)
        return ready


class SavepointBatches:
    """Runs the items of open transactions in parts.

    Args:
        loop: executes runs.
        reader: decodes payloads again for a second run.
        recorder: the worker's flight recorder.
        monotonic: seconds, for the unit's deadline.
        second_look: an item that violated a unique constraint runs once more, by failure isolation, before it is charged.
        keys_matter: decisions about an item may depend on earlier ones of its key.
    """

    def __init__(
        self,
        loop: ItemLoop,
        reader: Reader,
        recorder: AnyRecorder,
        monotonic: Callable[[], float],
        *,
        second_look: bool,
        keys_matter: bool,
    ) -> None:
        self._loop = loop
        self._reader = reader
        self._recorder = recorder
        self._monotonic = monotonic
        self._second_look = second_look
        self._keys_matter = keys_matter

    def run(self, opened: OpenTransaction, items: Sequence[Item], every: int) -> TransactionResult:
        """Run all items, with a savepoint before each `every` of them.

        Raises:
            Exception: as ItemLoop.run; the whole transaction must be rolled back.
        """
        done = TransactionResult()
        for start in range(0, len(items), every):
            if done.runs and self._monotonic() > opened.unit.deadline:
                rest = [item.delivery for item in items[start:]]
                done.leave_out(rest, dict.fromkeys(rest, RETURNED), done.held)
                break
            part = items[start : start + every]
            done.leave_out([item.delivery for item in part], {}, done.held)
            self._part(opened, [item for item in part if item.key not in done.held], done)
        return done

    def _part(self, opened: OpenTransaction, items: Sequence[Item], done: TransactionResult) -> None:
        """Run items none of which is behind a held key; a key held by a later one holds back nothing before it."""
        flush_each = False
        while items:
            self._recorder.begin([item.envelope for item in items])
            savepoint = UnitSavepoint(opened.connection, opened.watch)
            try:
                run = self._loop.run(opened, items, flush_each=flush_each)
                savepoint.release()
            except Culprits as culprits:
                charged = {item.delivery: verdict for item, verdict in culprits.verdicts.items()}
                if not self._can_charge(charged, items) or not _undo(opened, savepoint):
                    raise
                order = [item.delivery for item in items]
                at = unproved(order, charged, writers(culprits.verdicts)) if self._keys_matter else None
                if at is None:
                    left = done.leave_out(order, first_of_each_key(order, charged), ())
                else:
                    before = done.held.copy()
                    self._part(opened, make_items(order[:at], self._reader), done)
                    left = done.leave_out(order[at:], {}, done.held - before)
                items = make_items(left, self._reader)
            except UnknownCulprit:
                if flush_each or not _undo(opened, savepoint):
                    raise
                flush_each = True
                items = make_items([item.delivery for item in items], self._reader)
            else:
                done.add(run)
                return
            done.undone += 1

    def _can_charge(self, charged: Mapping[Delivery, Verdict], items: Sequence[Item]) -> bool:
        if self._second_look and any(
            verdict.error is not None and is_unique_violation(verdict.error) for verdict in charged.values()
        ):
            return False
        return not charged.keys().isdisjoint(item.delivery for item in items)


def _undo(opened: OpenTransaction, savepoint: UnitSavepoint) -> bool:
    """Roll back a part; returns whether the transaction can continue."""
    return savepoint.undo() and opened.obstacle() is None
