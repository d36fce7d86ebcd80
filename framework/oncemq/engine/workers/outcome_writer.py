"""Saves how handlers of direct units have ended: many at once, in one thread, while other handlers run."""

import asyncio
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from oncemq.contracts.unit import Item, Run
from oncemq.engine.base.error_verdicts import fault_of
from oncemq.errors import InfrastructureError, StrategyBug
from oncemq.message.envelope import Delivery
from oncemq.retry.classify import Fault

Trouble = InfrastructureError | StrategyBug

_MOST = 1000
"""Outcomes saved at once; more would delay the first ones."""
_LOOKS_AGAIN = 0.1
"""Seconds between looks at the clock, while some are to be tried again."""
_FIRST_WAIT = 0.05
_LONGEST_WAIT = 5.0


class Ended:
    """A handler that has ended, whose outcome is not saved yet.

    Args:
        run: the message's own run.
        item: its verdict is set.
        told: called in another thread when it is saved, or never will be, with all of the same `told`.

    Attributes:
        trouble: why it could not be saved; the process is ending.
    """

    __slots__ = ("item", "run", "told", "trouble")

    def __init__(self, run: Run, item: Item, told: "Told") -> None:
        self.run = run
        self.item = item
        self.told = told
        self.trouble: Trouble | None = None


Told = Callable[[list[Ended]], None]


class UnitOutcomes:
    """The outcomes of one unit in a thread, which waits for them before it settles.

    Args:
        writer: saves them.

    Attributes:
        ended: all that were added, in order.
    """

    def __init__(self, writer: "OutcomeWriter") -> None:
        self._writer = writer
        self.ended: list[Ended] = []
        self._unsaved: set[str] = set()
        self._left = 0
        self._changed = threading.Condition(threading.Lock())

    def add(self, run: Run, item: Item) -> None:
        """Let the outcome of `item` be saved.

        Raises:
            StrategyBug: outcomes are not saved any more.
        """
        ended = Ended(run, item, self._saved)
        with self._changed:
            self._left += 1
        try:
            self._writer.add(ended)
        except StrategyBug:
            self._saved([ended])
            raise
        self.ended.append(ended)
        self._unsaved.add(item.envelope.identity)

    def has_unsaved(self, delivery: Delivery) -> bool:
        """Return whether the outcome of an earlier message with the same identity may not be saved yet."""
        return delivery.envelope is not None and delivery.envelope.identity in self._unsaved

    def wait(self) -> None:
        """Wait until all are saved."""
        with self._changed:
            self._changed.wait_for(lambda: not self._left)
        self._unsaved.clear()

    def _saved(self, ended: list[Ended]) -> None:
        with self._changed:
            self._left -= len(ended)
            if not self._left:
                self._changed.notify()


class LoopOutcomes:
    """Outcomes of messages on an event loop, each awaited.

    Args:
        writer: saves them.
    """

    def __init__(self, writer: "OutcomeWriter") -> None:
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Ended, asyncio.Future[None]] = {}

    async def save(self, run: Run, item: Item) -> None:
        """Return when the outcome of `item` is saved.

        Raises:
            InfrastructureError, StrategyBug: it could not be, and the process ends.
        """
        ended = Ended(run, item, self._saved)
        saved = self._waiting[ended] = self._loop.create_future()
        try:
            self._writer.add(ended)
            await saved
        finally:
            del self._waiting[ended]
        if ended.trouble is not None:
            raise ended.trouble

    def _saved(self, ended: list[Ended]) -> None:
        with suppress(RuntimeError):  # the loop has ended, by an error that ends the app
            self._loop.call_soon_threadsafe(self._wake, ended)

    def _wake(self, ended: list[Ended]) -> None:
        for each in ended:
            if (saved := self._waiting.get(each)) is not None and not saved.done():
                saved.set_result(None)


class OutcomeWriter:
    """Saves outcomes as they come: those that come while some are being saved are saved together, next.

    So an outcome waits for one transaction, and never for another message's handler: what a dying process leaves in
    doubt are handlers of the last milliseconds. One that cannot be saved is tried again, until it can or the process ends;
    others do not wait for it, unless the database is away.

    Args:
        save: saves several; returns those that it could not, with their `trouble`.
        troubled: called with (tries, pause in seconds, error) before some are tried again.
        give_up: whether to stop trying, since the process is ending.
        sleep: waits seconds between tries.
        monotonic: seconds.
    """

    def __init__(
        self,
        save: Callable[[Sequence[Ended]], list[Ended]],
        troubled: Callable[[int, float, Trouble], None],
        give_up: Callable[[], bool],
        sleep: Callable[[float], object],
        monotonic: Callable[[], float],
    ) -> None:
        self._save = save
        self._troubled = troubled
        self._give_up = give_up
        self._sleep = sleep
        self._monotonic = monotonic
        self._ended: list[Ended] = []
        self._again: list[Ended] = []
        self._tries = 0
        self._due = 0.0
        self._changed = threading.Condition(threading.Lock())
        self._waiting = False
        self._closed = False
        self._broken = False

    def add(self, ended: Ended) -> None:
        """Let an outcome be saved.

        Raises:
            StrategyBug: the thread has ended, or is about to.
        """
        with self._changed:
            if self._broken or self._closed:
                raise StrategyBug("outcomes are not saved any more: their thread has ended")
            self._ended.append(ended)
            if self._waiting:
                self._changed.notify()

    def loop(self) -> None:
        """Save until closed."""
        batch: list[Ended] = []
        try:
            while batch := self._next():
                self._again += (failed := self._save(batch))
                lost = set(failed)
                _tell([ended for ended in batch if ended not in lost])
                if failed and (trouble := failed[-1].trouble) is not None:
                    self._pause(trouble, all_failed=len(failed) == len(batch))
                elif not self._again:
                    self._tries = 0
        except BaseException:
            self._break([*batch, *self._again])
            raise

    def close(self) -> None:
        """End the loop when all is saved; nothing is added any more."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _next(self) -> list[Ended]:
        """Return what to save now; nothing at the end."""
        with self._changed:
            while not self._ended and not self._is_due() and not (self._closed and not self._again):
                self._waiting = True
                self._changed.wait(_LOOKS_AGAIN if self._again else None)
                self._waiting = False
            batch, self._ended = self._ended[:_MOST], self._ended[_MOST:]
            if self._is_due():
                batch, self._again = [*self._again, *batch], []
            return batch

    def _is_due(self) -> bool:
        return bool(self._again) and (self._due <= self._monotonic() or self._give_up())

    def _pause(self, trouble: Trouble, *, all_failed: bool) -> None:
        """Decide when those that failed are tried again."""
        if self._give_up():
            again, self._again = self._again, []
            _tell(again)
            return
        self._tries += 1
        pause = random.uniform(0.0, min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(self._tries, 10)))  # noqa: S311
        self._troubled(self._tries, pause, trouble)
        self._due = self._monotonic() + pause
        away = isinstance(trouble, InfrastructureError) and fault_of(trouble) is not Fault.TRANSIENT
        if all_failed and away:
            self._sleep(pause)

    def _break(self, lost: Iterable[Ended]) -> None:
        with self._changed:
            self._broken = True
            lost, self._ended = [*lost, *self._ended], []
        for ended in lost:
            ended.trouble = ended.trouble or StrategyBug("its outcome was not saved")
        _tell(lost)


def _tell(batch: Iterable[Ended]) -> None:
    together: dict[Told, list[Ended]] = {}
    for ended in batch:
        together.setdefault(ended.told, []).append(ended)
    for told, ended_there in together.items():
        told(ended_there)
