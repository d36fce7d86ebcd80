"""Kills the own process at a named point of a message's way, the n-th time it is passed, and leaves a line that says so."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from storm.attack.files import FIRED, Trace

POINTS = (
    "received",
    "reserved",
    "loaded",
    "decided",
    "in-handler",
    "handler-wrote",
    "handled",
    "saved",
    "before-commit",
    "commit-sent",
    "committed",
    "caches",
    "before-ack",
    "ack-sent",
    "retry-sent",
    "retry-confirmed",
    "retry-published",
    "dead-letter-sent",
    "dead-letter-confirmed",
    "dead-letter-published",
    "draining",
    "shutdown",
)
"""In the order in which a message passes them; the last two belong to the process."""

AT_THE_END = ("draining", "shutdown")

PROGRESS = "progress-sent"
"""On RocketMQ and Kafka only: a broker was told how far a queue is finished, which is not told message by message."""


class Killer:
    """The `point` hook of a process that shall die.

    Args:
        folder: where the line is left.
        name: the point; empty for a process that shall live.
        passes: at which pass of the point it dies, counted from 1.

    Attributes:
        armed: the unit's commit that follows is the one to die in.
    """

    def __init__(self, folder: Path, name: str, passes: int) -> None:
        self._trace = Trace(folder / FIRED)
        self._name = name
        self._left = passes
        self._lock = Lock()
        self.armed = False

    def wants(self, name: str) -> bool:
        """Return whether this process shall die at the point `name`."""
        return name == self._name

    def __call__(self, name: str) -> None:
        """Note that the point is passed; does not return from the last pass."""
        if name != self._name and not (name == "before-commit" and self._name == "commit-sent"):
            return
        with self._lock:
            self._left -= 1
            if self._left <= 0:
                if name != self._name:
                    self.armed = True
                    return
                self.die()

    def die(self) -> None:
        """Leave the line and die."""
        self._trace.write(self._name, os.getpid())
        os.kill(os.getpid(), signal.SIGKILL)


def fired(lines: Sequence[Sequence[str]], name: str) -> int:
    """Return how often processes have died at the point `name`."""
    return sum(words[0] == name for words in lines)
