"""The loop of one run for a batch handler: one call for as many items as may run together."""

from typing import NoReturn

from oncemq.errors import HandlerFault, InfrastructureError
from oncemq.run.items import Frame, ItemLoop, overdue
from oncemq.run.judge import UnknownCulprit, describe
from oncemq.run.recorder import FLUSHING
from oncemq.run.whose import is_units
from oncemq.unit import Item, Run
from oncemq.verdict import PROCEED, RETURNED, Culprits


class BatchLoop(ItemLoop):
    """Decides item by item and calls the handler once for a stretch of items.

    A stretch ends before the second item of a key or identity, for strategies that must see the first one recorded.
    Where all decide by the identity alone, it does not end there: a copy waits until its first one has run.
    """

    one_by_one = False

    def run(self, run: Run, frame: Frame) -> None:
        """Give every item of `run` a verdict; raises as for single items."""
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
        """Decide about items whose first ones have run: each is a duplicate, or a Conflict with it."""
        for item in copies:
            verdict = self._chain.decide(run, item)
            # Nothing may run any more: what somehow is no copy has its turn in the next unit.
            item.verdict = RETURNED if verdict is PROCEED else verdict
            if item.verdict.final:
                self._chain.record(run, item)

    def _call_together(self, run: Run, together: list[Item], frame: Frame) -> None:
        call = self._call_batch
        if not together or call is None:
            return
        if len(together) > 1:
            # The whole stretch is one call: if the process dies in it, nobody knows because of whom.
            self._recorder.index[0] = FLUSHING
        now = self._monotonic()
        frame.watch.enter(crowded=frame.session.pending())
        self._slot.started = now
        try:
            call(run, together)
        except Culprits:
            raise
        except BaseException as error:
            self._blame_batch(together, error, frame, now)
        finally:
            frame.watch.handling = False
            self._slot.started = 0.0
            if self._slot.overdue == now:
                self._slot.wait_for_cancel()
        fault = frame.watch.doomed or frame.session.misuse()
        if fault is not None or self._slot.overdue == now:
            self._blame_batch(together, fault, frame, now)
        for item in together:
            self._chain.record(run, item)
            frame.unflushed.append(item)
        together.clear()

    def _blame_batch(
        self, together: list[Item], error: BaseException | None, frame: Frame, started: float
    ) -> NoReturn:
        if len(together) == 1 and error is not None:
            units = is_units(error, frame.watch.doomed, frame.sound)
            self._blame(together[0], frame.watch, error, started, units=units)
        if self._slot.overdue == started:
            late = overdue()
            if len(together) == 1:
                raise Culprits({together[0]: late})
            raise UnknownCulprit(late.reason) from late.error
        cause = frame.watch.doomed or error or HandlerFault("the batch failed")
        if is_units(cause, frame.watch.doomed, frame.sound):
            raise InfrastructureError(describe(cause)) from cause
        raise UnknownCulprit(describe(cause)) from cause
