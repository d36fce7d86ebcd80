"""The loop of one run for a batch handler: one call for as many items as may run together."""

from oncemq.errors import InfrastructureError
from oncemq.run.items import Frame, ItemLoop
from oncemq.run.judge import UnknownCulprit, describe, is_infrastructure, judge
from oncemq.unit import Item, Run
from oncemq.verdict import PROCEED, RETURNED, Culprits


class BatchLoop(ItemLoop):
    """Decides item by item and calls the handler once for a stretch of items.

    A stretch ends before the second item of a key: strategies must see the first one recorded.
    """

    def run(self, run: Run, frame: Frame) -> None:
        """Give every item of `run` a verdict; raises as for single items."""
        together: list[Item] = []
        keys: set[str] = set()
        held: set[str] = set()
        for position, item in enumerate(run.items, 1):
            if item.key in keys:
                self._call_together(run, together, frame)
                keys.clear()
            if item.key in held:
                item.verdict = RETURNED
                continue
            verdict = self._chain.decide(run, item)
            item.verdict = verdict
            if verdict is PROCEED:
                self._recorder.index[0] = position
                together.append(item)
                keys.add(item.key)
            elif verdict.final:
                self._chain.record(run, item)
            elif verdict.holds_key:
                held.add(item.key)
        self._call_together(run, together, frame)

    def _call_together(self, run: Run, together: list[Item], frame: Frame) -> None:
        call = self._call_batch
        if not together or call is None:
            return
        now = self._monotonic()
        frame.watch.handling = True
        self._slot.started = now
        try:
            call(run, together)
        except Culprits:
            raise
        except BaseException as error:
            self._blame_batch(together, error, frame)
        finally:
            frame.watch.handling = False
            self._slot.started = 0.0
        if frame.watch.doomed is not None:
            self._blame_batch(together, frame.watch.doomed, frame)
        for item in together:
            self._chain.record(run, item)
            frame.unflushed.append(item)
        together.clear()

    def _blame_batch(self, together: list[Item], error: BaseException, frame: Frame) -> None:
        cause = frame.watch.doomed or error
        if is_infrastructure(cause):
            raise InfrastructureError(describe(cause)) from cause
        if len(together) == 1:
            raise Culprits({together[0]: judge(error)}) from error
        raise UnknownCulprit(describe(error)) from error
