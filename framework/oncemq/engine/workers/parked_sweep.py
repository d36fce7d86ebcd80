"""Takes parked messages that are due: a pause is over, a gap has timed out, or the process that took them has died."""

from datetime import timedelta
from typing import Final

from sqlalchemy import ColumnElement, Dialect, Engine

from oncemq.contracts.strategy import UpkeepTask
from oncemq.engine.consumer.pause_gate import PauseGate
from oncemq.engine.consumer.scheduler import Scheduler
from oncemq.engine.parking.parked_source import ParkedMessages

EVERY: Final = timedelta(seconds=1)
PACE: Final = timedelta(seconds=5)
"""The pause of all processes but one: if that one cannot take messages, or dies, they wait this much longer."""
_ENOUGH: Final = 1000
"""The most parked messages waiting here; other due ones are taken later, or by another process."""


class Sweep:
    """One process's background task for one consumer; other processes may do the same at the same time."""

    def __init__(self, messages: ParkedMessages, gate: PauseGate, scheduler: Scheduler) -> None:
        self._messages = messages
        self._gate = gate
        self._scheduler = scheduler

    def wanted(self, dialect: Dialect) -> ColumnElement[bool]:
        """Return the condition under which messages are due."""
        return self._messages.any_due(dialect)

    def __call__(self, engine: Engine) -> bool:
        """Take some and queue them; returns whether there may be more."""
        if self._gate.stopped or self._gate.held or len(self._messages.queued()) > _ENOUGH:
            return False
        with engine.begin() as connection:
            found = self._messages.sweep(connection)
        self._scheduler.put(found)
        return bool(found)


def sweeps(messages: ParkedMessages | None, gate: PauseGate, scheduler: Scheduler) -> list[UpkeepTask]:
    """Return the task of a consumer whose messages may be parked."""
    if messages is None:
        return []
    sweep = Sweep(messages, gate, scheduler)
    name = f"parked {messages.name}"
    return [UpkeepTask(name, EVERY, sweep, everywhere=True, pace=PACE, wanted=sweep.wanted)]
