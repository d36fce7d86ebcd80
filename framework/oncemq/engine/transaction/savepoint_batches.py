"""Runs items inside one transaction: all in one run, or part by part with a savepoint before each.

A failure after writing rolls back its whole run. If failures are frequent, parts keep that cheap: the failing item's part
is rolled back to its savepoint and runs again without it; the parts before stay, and all are committed together.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sqlalchemy import Connection, NestedTransaction, RootTransaction

from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import RETURNED, Culprits, Verdict
from oncemq.engine.base.error_verdicts import UnknownCulprit, is_infrastructure, judge
from oncemq.engine.base.items import make_items
from oncemq.engine.crash.flight_recorder import AnyRecorder
from oncemq.engine.transaction.connection_watch import ConnectionWatch, UnitConnection
from oncemq.engine.transaction.handler_session import Collector, obstacle
from oncemq.engine.transaction.isolation import HiddenCommit
from oncemq.engine.transaction.item_loop import LoopContext
from oncemq.message.envelope import Delivery
from oncemq.message.reader import Reader
from oncemq.retry.classify import is_unique_violation

Work = Callable[[Run, LoopContext], None]
"""Executes a run from its load to its save."""


@dataclass(slots=True)
class OpenTransaction:
    """One open transaction.

    Args:
        unit: the unit.
        connection: its connection.
        transaction: the open one.
        watch: the observations on the connection.
        flush_each: flush after every item.
    """

    unit: Unit
    connection: UnitConnection
    transaction: RootTransaction
    watch: ConnectionWatch
    flush_each: bool

    def begin_part(self) -> NestedTransaction:
        """Return a new savepoint, which is not mistaken for a handler's."""
        savepoint = self.connection.begin_nested()
        self.watch.savepoint = savepoint
        return savepoint

    def undo_part(self, savepoint: NestedTransaction) -> bool:
        """Roll back to the savepoint; returns whether the transaction can continue."""
        doomed = self.watch.doomed
        if doomed is not None and is_infrastructure(doomed):
            # The server may have rolled back everything.
            return False
        if self.connection.get_nested_transaction() not in (savepoint, None):
            # A savepoint of the handler's is still open; their nesting is not examined.
            return False
        try:
            if savepoint.is_active:
                savepoint.rollback()
        except Exception:
            return False
        self.watch.forgive()
        return obstacle(self.connection, self.transaction, self.watch) is None


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


def unproved(order: Sequence[Delivery], charged: Mapping[Delivery, Verdict]) -> int | None:
    """Return the place of a charged message whose failure may follow from what an earlier one did; None if there is none.

    A strategy may still refuse, when it saves, what an earlier handler of the run has done, and the failure with it. So the
    earlier ones are saved first. Of several that were charged together those count that have an earlier one of their key.
    """
    keys: set[str] = set()
    for at, delivery in enumerate(order):
        if delivery in charged and at and (len(charged) == 1 or delivery.key in keys):
            return at
        keys.add(delivery.key)
    return None


@dataclass(slots=True)
class TransactionResult:
    """The contents of one transaction.

    Attributes:
        runs: in order.
        left_out: items in none of them: those at fault, and those that must wait behind them.
        held: keys of which nothing more may run.
        undone: how often a part was rolled back to its savepoint.
    """

    runs: list[Run] = field(default_factory=list)
    left_out: dict[Delivery, Verdict] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    undone: int = 0

    def add(self, run: Run) -> None:
        """Keep a run that stays."""
        self.runs.append(run)
        self.held.update(item.key for item in run.items if item.verdict is None or item.verdict.holds_key)

    def leave_out(
        self, deliveries: Iterable[Delivery], verdicts: Mapping[Delivery, Verdict], held: Iterable[str]
    ) -> list[Delivery]:
        """Return items that may run; those with a verdict, and those behind a key that is held before them, are left out."""
        left, before = [], set(held)
        for delivery in deliveries:
            verdict = verdicts.get(delivery, RETURNED if delivery.key in before else None)
            if verdict is None:
                left.append(delivery)
                continue
            self.left_out[delivery] = verdict
            if verdict.holds_key:
                before.add(delivery.key)
        self.held |= before
        return left


class SavepointBatches:
    """Runs the items of open transactions.

    Args:
        work: executes a run from its load to its save.
        reader: decodes payloads again for a second run.
        recorder: the worker's flight recorder.
        monotonic: seconds, for the unit's deadline.
        second_look: an item that violated a unique constraint runs once more, by failure isolation, before it is charged.
        keys_matter: decisions about an item may depend on earlier ones of its key.
        write: writes the strategies' records to the database; None = there are none.
    """

    def __init__(
        self,
        work: Work,
        reader: Reader,
        recorder: AnyRecorder,
        monotonic: Callable[[], float],
        *,
        second_look: bool,
        keys_matter: bool,
        write: Callable[[Run], None] | None = None,
    ) -> None:
        self._work = work
        self._write = write
        self._reader = reader
        self._recorder = recorder
        self._monotonic = monotonic
        self._second_look = second_look
        self._keys_matter = keys_matter

    def run(self, scene: OpenTransaction, items: Sequence[Item], every: int | None) -> TransactionResult:
        """Run all items; with a savepoint after `every` items, None = without.

        Raises:
            Culprits, UnknownCulprit, InfrastructureError, StrategyBug: the whole transaction must be rolled back.
        """
        done = TransactionResult()
        if every is None or every >= len(items):
            done.runs.append(self._once(scene, items, flush_each=scene.flush_each))
            return done
        for start in range(0, len(items), every):
            if done.runs and self._monotonic() > scene.unit.deadline:
                rest = [item.delivery for item in items[start:]]
                done.leave_out(rest, dict.fromkeys(rest, RETURNED), done.held)
                break
            part = items[start : start + every]
            done.leave_out([item.delivery for item in part], {}, done.held)
            self._part(scene, [item for item in part if item.key not in done.held], done)
        return done

    def _part(self, scene: OpenTransaction, items: Sequence[Item], done: TransactionResult) -> None:
        """Run items none of which is behind a held key; a key held by a later one holds back nothing before it."""
        flush_each = False
        while items:
            self._recorder.begin([item.envelope for item in items])
            savepoint = scene.begin_part()
            try:
                run = self._once(scene, items, flush_each=flush_each)
                savepoint.commit()
            except Culprits as culprits:
                charged = {item.delivery: verdict for item, verdict in culprits.verdicts.items()}
                if not self._can_charge(charged, items) or not scene.undo_part(savepoint):
                    raise
                order = [item.delivery for item in items]
                at = unproved(order, charged) if self._keys_matter else None
                if at is None:
                    left = done.leave_out(order, first_of_each_key(order, charged), ())
                else:
                    before = done.held.copy()
                    self._part(scene, make_items(order[:at], self._reader), done)
                    left = done.leave_out(order[at:], {}, done.held - before)
                items = make_items(left, self._reader)
            except UnknownCulprit:
                if flush_each or not scene.undo_part(savepoint):
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

    def _once(self, scene: OpenTransaction, items: Sequence[Item], *, flush_each: bool) -> Run:
        collector = Collector(scene.connection)
        try:
            run = Run(scene.unit, items, scene.connection, collector)

            def reason_to_end() -> BaseException | None:
                return obstacle(scene.connection, scene.transaction, scene.watch, collector)

            frame = LoopContext(
                scene.connection,
                collector,
                scene.watch,
                flush_each,
                lambda: reason_to_end() is None,
                self._write,
            )
            self._work(run, frame)
            if scene.watch.strays:
                raise Culprits({item: judge(error) for item, error in scene.watch.strays.items()})
            reason = reason_to_end()
            if reason is not None:
                raise UnknownCulprit(str(reason)) from reason
            return run
        finally:
            scene.watch.handling = False
            _close(collector, scene.connection)


def _close(session: Collector, connection: Connection) -> None:
    try:
        session.close()
    except Exception:
        # A handler may have closed the connection; then there is nothing left to discard.
        with suppress(Exception):
            connection.invalidate()
