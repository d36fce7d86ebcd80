"""Loop of one run for a batch handler: one call for as many items as may run together."""

from collections.abc import Mapping
from typing import Any, NoReturn

from oncemq.common.error_text import attribute, clean_text, is_a
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import PROCEED, RETURNED, Culprits
from oncemq.engine.base.error_verdicts import judge
from oncemq.engine.crash.flight_recorder import FLUSHING
from oncemq.engine.transaction.error_attribution import is_units
from oncemq.engine.transaction.item_loop import Call, ItemLoop, LoopContext
from oncemq.errors import BadItems, HandlerFault

_MOST_SHOWN = 200


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
        reads_between = self._chain.reads_between
        keys: set[str] = set()
        identities: set[str] = set()
        held: set[str] = set()
        started = False
        for position, item in enumerate(run.items, 1):
            again = item.key in keys or item.envelope.identity in identities
            if (again and not joins) or (together and reads_between):
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
            if started and reads_between:
                frame.bring(run)
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
            if is_a(error, BadItems):
                self._blame_named(call, error)
            self._blame(call, error, units=_is_units(call, error))
        finally:
            call.over()
            self._slot.started = 0.0
            if self._slot.overdue == now:
                self._slot.wait_for_cancel()
        fault = call.fault()
        if fault is None and self._slot.overdue == now:
            fault = HandlerFault("the batch took too long")
        if fault is not None:
            self._blame(call, fault, units=_is_units(call, fault), swallowed=True)
        call.keep(waits=waits)
        for item in together:
            self._chain.record(run, item)
        together.clear()

    def _blame_named(self, call: Call, error: BadItems) -> NoReturn:
        """Charge the messages that the handler named, unless their errors may not be theirs.

        The names do not count where the transaction cannot continue, or an error concerns the whole unit: what a handler saw
        afterwards may follow from it.

        Raises:
            Culprits: with the named messages.
            Exception: as `_blame`.
        """
        named = errors_named(error, len(call.items))
        if isinstance(named, HandlerFault):
            self._blame(call, named, units=_is_units(call, named))
        watch = call.frame.watch
        doomed, late = watch.doomed, self._slot.overdue == call.started
        doubtful = [each for each in named.values() if _is_units(call, each)]
        if doomed is not None:
            self._blame(call, doomed, units=_is_units(call, doomed), swallowed=True)
        if doubtful or late or call.frame.failed is not None:
            self._blame(call, (doubtful or list(named.values()))[0], units=bool(doubtful))
        raise Culprits({call.items[at]: judge(each) for at, each in named.items()}) from error


def errors_named(error: BadItems, count: int) -> Mapping[int, BaseException] | HandlerFault:
    """Return the errors that a handler names, by position, or why they name nothing.

    Args:
        error: the handler's.
        count: the number of messages in its batch.
    """
    errors: Any = attribute(error, "errors")
    if not isinstance(errors, Mapping):
        return _unusable(f"BadItems holds {_shown(errors)}", error)
    named = dict(errors)
    if not named:
        return _unusable("BadItems names no message", error)
    for at, each in named.items():
        if type(at) is not int or not 0 <= at < count:
            return _unusable(f"BadItems names {_shown(at)}, which is no index in a batch of {count}", error)
        if not issubclass(type(each), BaseException):
            return _unusable(f"BadItems holds {_shown(each)} for index {at}, which is no exception", error)
    return named


def _unusable(why: str, cause: BadItems) -> HandlerFault:
    fault = HandlerFault(f"{why}: raise BadItems({{index in the Batch: exception, …}})")
    fault.__cause__ = cause
    return fault


def _shown(thing: object) -> str:
    try:
        return clean_text(repr(thing), _MOST_SHOWN)
    except BaseException:  # a foreign object's own code may raise anything
        return f"an object of {type(thing)}"


def _is_units(call: Call, error: BaseException) -> bool:
    watch = call.frame.watch
    return is_units(error, watch.doomed, call.frame.sound, raw=watch.raw)
