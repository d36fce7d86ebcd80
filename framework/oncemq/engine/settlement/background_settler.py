"""Settles what failed beside the worker, which goes on meanwhile: a dead letter's confirmation outlasts many a unit.

Everything a failed message needs is told to the broker (and the ledger's history) by one thread for each consumer,
all that is waiting at a time together. Nothing later depends on it: keys are given up when their unit ends.
"""

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

from oncemq.contracts.verdict import Outcome, Verdict
from oncemq.message.envelope import Delivery

_UNSETTLED = frozenset({Outcome.RETURNED, Outcome.DEFER, Outcome.VOID})

Pairs = Sequence[tuple[Delivery, Verdict]]


class Settles(Protocol):
    """What a worker needs of settling."""

    def settle(self, verdicts: Pairs) -> None:
        """Tell the broker about every verdict that needs it."""
        ...

    def held_too_long(self, delivery: Delivery) -> bool:
        """Return whether a deferred delivery has been kept for so long that the broker gets it back."""
        ...

    def put_off(self, deferred: Sequence[tuple[Delivery, timedelta]]) -> None:
        """Have the broker keep deferred deliveries for so long."""
        ...


class Holder(Protocol):
    """Who knows what is in hand; a delivery counts as such until it is settled."""

    def settling(self, deliveries: Sequence[Delivery]) -> None:
        """Note deliveries that are about to be settled."""
        ...

    def settled(self, deliveries: Sequence[Delivery]) -> None:
        """Note that their settlement has ended."""
        ...


class BackgroundSettler:
    """Acknowledges at once; leaves retries and dead letters to its own thread.

    Args:
        settler: does the settling, from any thread.
        holder: told what is still in hand.
        failed: told of an error that no settling should raise; the message that it is about stays unsettled.
    """

    def __init__(
        self, settler: Settles, holder: Holder, failed: Callable[[str, BaseException], None]
    ) -> None:
        self._settler = settler
        self._report = failed
        self._holder = holder
        self._failed: list[tuple[Delivery, Verdict]] = []
        self._changed = threading.Condition()
        self._closed = False
        self.held_too_long = settler.held_too_long
        self.put_off = settler.put_off

    def settle(self, verdicts: Pairs) -> None:
        """Acknowledge what is done, and return; what failed is settled soon."""
        done = [pair for pair in verdicts if pair[1].acknowledged]
        if len(done) < len(verdicts):
            self._leave([pair for pair in verdicts if _has_failed(pair[1])])
        self._settler.settle(done)

    def loop(self) -> None:
        """Settle what failed, until closed and nothing is left."""
        while self._wait():
            self.catch_up()

    def catch_up(self) -> None:
        """Settle what has failed so far."""
        with self._changed:
            failed, self._failed = self._failed, []
        if not failed:
            return
        try:
            self._settle(failed)
        finally:
            self._holder.settled([delivery for delivery, _ in failed])

    def _settle(self, failed: list[tuple[Delivery, Verdict]]) -> None:
        """Settle all together; where that raises, each alone: this thread serves all messages of its consumer."""
        try:
            self._settler.settle(failed)
        except Exception as error:
            if len(failed) == 1:
                # The broker delivers it again when this process ends.
                self._report(f"settling {failed[0][0]!r}", error)
                return
            for pair in failed:
                self._settle([pair])

    def close(self) -> None:
        """Let `loop` end when all is settled."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wait(self) -> bool:
        """Wait for something to do; False when it is time to end."""
        with self._changed:
            while not self._failed and not self._closed:
                self._changed.wait()
            return bool(self._failed)

    def _leave(self, failed: list[tuple[Delivery, Verdict]]) -> None:
        if failed:
            self._holder.settling([delivery for delivery, _ in failed])
            with self._changed:
                self._failed += failed
                self._changed.notify_all()


def _has_failed(verdict: Verdict) -> bool:
    return not verdict.acknowledged and verdict.outcome not in _UNSETTLED
