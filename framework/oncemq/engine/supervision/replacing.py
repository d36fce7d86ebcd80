"""Replaces worker processes one after the other: the successor is ready before its predecessor drains."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from oncemq.engine.supervision.child import Child
from oncemq.engine.supervision.recycling import Limits, Reason, RecycleRule

READY_WITHIN = 120.0
"""Seconds that a successor has until every consumer is subscribed; its imports may be slow."""
_FIRST_PAUSE = 5.0
_LONGEST_PAUSE = 300.0


class Step(StrEnum):
    """How far a replacement has come."""

    STARTED = "started"
    TOOK_OVER = "took over"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNLIMITED = "unlimited"
    """No replacement: the process needs more than the limit of memory from its start, so the limit is not kept."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A step of the replacement of a worker process.

    Args:
        step: how far it has come.
        reason: why it is replaced.
        old: the number of the process.
        old_pid: its process id.
        new: the number of its successor.
        new_pid: the successor's process id.
        messages: that the old process has worked on.
        memory: bytes of the old process.
        seconds: since the successor was started; at the end, since the old process was told to drain.
        again_in: seconds until another try of what failed; None = it is not tried again.
    """

    step: Step
    reason: Reason
    old: int
    old_pid: int
    new: int
    new_pid: int
    messages: int
    memory: int
    seconds: float
    again_in: float | None = None


@dataclass(slots=True)
class _Pair:
    """A replacement that has begun."""

    reason: Reason
    old: Child
    new: Child
    killed_late: bool = False

    def step(self, step: Step, seconds: float, again_in: float | None = None) -> Replacement:
        old, new = self.old, self.new
        return Replacement(
            step,
            self.reason,
            old.index,
            old.process.pid or 0,
            new.index,
            new.process.pid or 0,
            old.messages,
            old.memory,
            seconds,
            again_in,
        )


class Replacements:
    """Replacements of a supervisor's worker processes, at most one at a time.

    A process whose successor does not become ready goes on. One that dies meanwhile is replaced by that successor.

    Args:
        rule: when a process is recycled.
        kill_after: seconds after which a process that was told to drain is killed.
        tell: called at each step.
        ready_within: seconds after which a successor that is not ready is killed.
        draw: where the jitter comes from.
    """

    def __init__(
        self,
        rule: RecycleRule | None,
        kill_after: float,
        tell: Callable[[Replacement], None] = lambda _: None,
        ready_within: float = READY_WITHIN,
        draw: Random | None = None,
    ) -> None:
        self._rule = rule
        self._kill_after = kill_after
        self._tell = tell
        self._ready_within = ready_within
        self._draw = draw or Random()  # noqa: S311 - jitter
        self._wanted: dict[int, Reason] = {}
        self._starting: _Pair | None = None
        self._leaving: _Pair | None = None
        self._not_before = 0.0
        self._pause = _FIRST_PAUSE
        self._proven = False
        """A process of this reload has been ready."""

    def limits(self) -> Limits | None:
        """Return the limits of a further process."""
        return None if self._rule is None else Limits(self._rule, self._draw)

    def order(self, children: Iterable[Child]) -> None:
        """Replace these processes, one after the other; a successor that is not ready yet is given up."""
        if self._starting is not None:
            self._starting.new.leave()
            self._tell(self._starting.step(Step.CANCELLED, 0.0))
            self._starting = None
        self._wanted = {child.index: Reason.RELOAD for child in children if child.leaving is None}
        self._not_before = 0.0
        self._proven = False

    def also(self, children: Iterable[Child]) -> None:
        """Replace these processes as well: they were started while others were being replaced, and run what is no longer wanted."""
        for child in children:
            if child.leaving is None:
                self._wanted.setdefault(child.index, Reason.RELOAD)

    def give_up(self) -> None:
        """Replace no process for a reload any more; limits that are reached are found again."""
        self._wanted.clear()

    def look(self, children: Mapping[int, Child], start: Callable[[Reason], Child]) -> Step | None:
        """Begin the next replacement, or go on with the one that has begun; returns the step that was taken.

        Args:
            children: those that run, by number.
            start: starts a successor.
        """
        now = time.monotonic()
        for child in children.values():
            self._judge(child, now)
        late = [child for child in children.values() if child.leaving is not None]
        for child in late:
            if child.leaving is not None and now - child.leaving > self._kill_after and not child.killed:
                child.kill_by_order()
        if self._starting is not None:
            return self._hand_over(self._starting, now)
        self._wanted = {
            index: reason
            for index, reason in self._wanted.items()
            if index in children and children[index].leaving is None
        }
        if late or not self._wanted or now < self._not_before:
            return None
        index, reason = next(iter(self._wanted.items()))
        self._starting = pair = _Pair(reason, children[index], start(reason))
        self._tell(pair.step(Step.STARTED, 0.0))
        return Step.STARTED

    def _judge(self, child: Child, now: float) -> None:
        """Note if a process has reached a limit."""
        if child.limits is None or child.ready is None or child.leaving is not None:
            return
        if not child.judged:
            child.judged = True
            if not child.limits.begin(child.memory):
                self._tell(_Pair(Reason.MEMORY, child, child).step(Step.UNLIMITED, 0.0))
        reason = child.limits.reached(now - child.ready, child.messages, child.memory)
        if reason is not None:
            self._wanted.setdefault(child.index, reason)

    def _hand_over(self, pair: _Pair, now: float) -> Step | None:
        if pair.new.ready is not None:
            # It may be wanted no more: what it was replaced for was given up meanwhile.
            self._wanted.pop(pair.old.index, None)
            self._starting, self._leaving, self._pause = None, pair, _FIRST_PAUSE
            pair.old.leave()
            self._proven = True
            self._tell(pair.step(Step.TOOK_OVER, now - pair.new.started))
            return Step.TOOK_OVER
        if now - pair.new.started > self._ready_within and not pair.new.killed:
            pair.new.kill_by_order()
        return None

    def ended(self, child: Child) -> Step | None:
        """Note the end of a process; returns what this means for its replacement, None if it had nothing to do with one.

        DONE: it has left its place to another one. FAILED: it was to be a successor, and its predecessor goes on.
        """
        now = time.monotonic()
        if child.leaving is not None:
            if self._leaving is not None and self._leaving.old is child:
                self._tell(self._leaving.step(Step.DONE, now - child.leaving))
                self._leaving = None
            return Step.DONE
        pair = self._starting
        if pair is None or child not in (pair.old, pair.new):
            return None
        self._starting = None
        if child is pair.old:
            pair.new.promoted = True
            self._wanted.pop(child.index, None)
            self._tell(pair.step(Step.TOOK_OVER, now - pair.new.started))
            return Step.DONE
        again_in: float | None = self._pause
        if pair.reason is Reason.RELOAD and not self._proven:
            again_in = None
            self.give_up()
        self._not_before = now + self._pause
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause)
        self._tell(pair.step(Step.FAILED, now - pair.new.started, again_in))
        return Step.FAILED
