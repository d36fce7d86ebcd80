"""Takes parked messages that are due: a pause is over, a gap has timed out, or the process that took them has died."""

from datetime import timedelta
from typing import Final

from sqlalchemy import Engine

from oncemq.contracts.strategy import UpkeepTask
from oncemq.engine.consumer.pause_gate import PauseGate
from oncemq.engine.consumer.scheduler import Scheduler
from oncemq.engine.parking.parked_source import ParkedMessages

EVERY: Final = timedelta(seconds=1)
_ENOUGH: Final = 1000
"""The most parked messages waiting here; other due ones are taken later, or by another process."""


class Sweep:
    """One process's background task for one consumer; other processes may do the same at the same time."""

    def __init__(self, messages: ParkedMessages, gate: PauseGate, scheduler: Scheduler) -> None:
        self._messages = messages
        self._gate = gate
        self._scheduler = scheduler

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
    return [
        UpkeepTask(f"parked {messages.consumer}", EVERY, Sweep(messages, gate, scheduler), everywhere=True)
    ]
