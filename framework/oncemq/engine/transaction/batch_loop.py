"""Loop of one run for a batch handler: one call for as many items as may run together."""

from oncemq.common.error_text import is_a
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import PROCEED, RETURNED, Culprits
from oncemq.engine.crash.flight_recorder import FLUSHING
from oncemq.engine.transaction.error_attribution import is_units
from oncemq.engine.transaction.item_loop import Call, ItemLoop, LoopContext
from oncemq.errors import HandlerFault


class BatchLoop(ItemLoop):
    """Decides item by item and calls the handler once for a stretch of items.

    A stretch ends before the second item of a key or identity, for strategies that must see the first one recorded.
    Where all decide by the identity only, it does not end there: a copy waits until the first one has run.
    """

    one_by_one = False

    def _run_items(self, run: Run, frame: LoopContext) -> None:
        together: list[Item] = []
        copies: list[Item] = []
        joins, remembers = self._chain.joins, bool(self._chain.copies)
        keys: set[str] = set()
        identities: set[str] = set()
        held: set[str] = set()
        started = False
        for position, item in enumerate(run.items, 1):
            if not joins and (item.key in keys or item.envelope.identity in identities):
                started = started or bool(together)
                self._call_together(run, together, frame)
                if started and frame.watch.isolated:
                    # The next call is independent.
                    held.update(left.key for left in run.items[position - 1 :])
                keys.clear()
                identities.clear()
            if item.key in held or (started and not together and self._monotonic() > run.unit.deadline):
                item.verdict = RETURNED
                held.add(item.key)
                continue
            if joins and remembers and item.envelope.identity in identities:
                copies.append(item)
                continue
            verdict = self._chain.decide(run, item)
            item.verdict = verdict
            if verdict is PROCEED:
                self._recorder.index[0] = position
                together.append(item)
                keys.add(item.key)
                identities.add(item.envelope.identity)
            elif verdict.final:
                self._chain.record(run, item)
            elif verdict.holds_key:
                held.add(item.key)
        self._call_together(run, together, frame)
        self._settle_copies(run, copies)

    def _settle_copies(self, run: Run, copies: list[Item]) -> None:
        """Decide copies whose first message has run: each is a duplicate, or a Conflict with it."""
        for item in copies:
            verdict = self._chain.decide(run, item)
            # Nothing may run any more: an item that is not a copy after all has its turn in the next unit.
            item.verdict = RETURNED if verdict is PROCEED else verdict
            if item.verdict.final:
                self._chain.record(run, item)

    def _call_together(self, run: Run, together: list[Item], frame: LoopContext) -> None:
        call_batch = self._call_batch
        if not together or call_batch is None:
            return
        if len(together) > 1:
            # The whole stretch is one call: if the process dies in it, the message at fault is unknown.
            self._recorder.index[0] = FLUSHING
        now = self._monotonic()
        call = Call(run, tuple(together), frame, now)
        self._slot.started = now
        try:
            call_batch(run, together)
            waits = call.complete()
        except BaseException as error:
            if is_a(error, Culprits) and not error.verdicts.keys().isdisjoint(together):
                raise  # invalid payloads, found before the handler ran
            frame.watch.handling = False
            units = is_units(error, frame.watch.doomed, frame.sound, raw=frame.watch.raw)
            self._blame(call, error, units=units)
        finally:
            call.over()
            self._slot.started = 0.0
            if self._slot.overdue == now:
                self._slot.wait_for_cancel()
        fault = call.fault()
        if fault is None and self._slot.overdue == now:
            fault = HandlerFault("the batch took too long")
        if fault is not None:
            units = is_units(fault, frame.watch.doomed, frame.sound, raw=frame.watch.raw)
            self._blame(call, fault, units=units, swallowed=True)
        call.keep(waits=waits)
        for item in together:
            self._chain.record(run, item)
        together.clear()
