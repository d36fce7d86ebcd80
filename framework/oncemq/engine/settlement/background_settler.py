"""Settles failed messages in the background while the worker continues: confirming a dead letter outlasts many units.

One thread per consumer reports everything about failed messages to the broker (and the ledger's history),
all waiting entries at a time together. Nothing later depends on it: keys are released when their unit ends.
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
    """Settlement interface for a worker."""

    def settle(self, verdicts: Pairs) -> None:
        """Report every verdict that needs it to the broker."""
        ...

    def held_too_long(self, delivery: Delivery) -> bool:
        """Return whether a deferred delivery has been kept long enough to be returned to the broker."""
        ...

    def put_off(self, deferred: Sequence[tuple[Delivery, timedelta]]) -> None:
        """Return deferred deliveries to the broker with these delays."""
        ...


class Holder(Protocol):
    """Tracks deliveries in flight; a delivery counts as such until it is settled."""

    def settling(self, deliveries: Sequence[Delivery]) -> None:
        """Record deliveries that are about to be settled."""
        ...

    def settled(self, deliveries: Sequence[Delivery]) -> None:
        """Record that their settlement has ended."""
        ...


class BackgroundSettler:
    """Acknowledges immediately; leaves retries and dead letters to its own thread.

    Args:
        settler: does the settling, from any thread.
        holder: notified of deliveries in flight.
        failed: called with unexpected errors of settling; the message concerned stays unsettled.
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
        """Acknowledge finished deliveries, and return; failed ones are settled soon."""
        done = [pair for pair in verdicts if pair[1].acknowledged]
        if len(done) < len(verdicts):
            self._leave([pair for pair in verdicts if _has_failed(pair[1])])
        self._settler.settle(done)

    def loop(self) -> None:
        """Settle failed deliveries, until closed and nothing is left."""
        while self._wait():
            self.catch_up()

    def catch_up(self) -> None:
        """Settle the failed deliveries so far."""
        with self._changed:
            failed, self._failed = self._failed, []
        if not failed:
            return
        try:
            self._settle(failed)
        finally:
            self._holder.settled([delivery for delivery, _ in failed])

    def _settle(self, failed: list[tuple[Delivery, Verdict]]) -> None:
        """Settle all together; if that raises, each alone: this thread serves all messages of its consumer."""
        try:
            self._settler.settle(failed)
        except Exception as error:
            if len(failed) == 1:
                # The broker redelivers it when this process ends.
                self._report(f"settling {failed[0][0]!r}", error)
                return
            for pair in failed:
                self._settle([pair])

    def close(self) -> None:
        """Let `loop` end once all is settled."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wait(self) -> bool:
        """Wait for work; False when it is time to end."""
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
