"""Passes for callbacks: messages that the parent has finished already, and callbacks that wait until it has."""

from collections.abc import Iterable, Mapping
from threading import Lock

from oncemq_adapters.librocketmq.frames import Identity
from oncemq_adapters.librocketmq.remembered import Remembered

REMEMBERED = 65_536
"""Half of the passes that are kept at most: a queue that is taken away leaves some whose callbacks never come."""

REPORTED = 32
"""After so many passes the parent is notified how far callbacks have come: it reads on from there."""


class Passes:
    """A pass lets one callback through, that of its own message; safe for all threads.

    Args:
        half: of the passes that are kept at most. A callback whose pass was forgotten asks the parent.
    """

    def __init__(self, half: int = REMEMBERED) -> None:
        self._lock = Lock()
        self._passes: Remembered[Identity, int] = Remembered(half)
        self._waiting: dict[Identity, Lock] = {}
        self._reached: dict[int, int] = {}
        self._unreported = 0

    def enter(self, identity: Identity) -> "Lock | None":
        """Return None if the message is finished, else what its callback has to acquire, and to release again."""
        with self._lock:
            queue = self._passes.take(identity)
            if queue is not None:
                self._reached[queue] = max(identity[2], self._reached.get(queue, 0))
                self._unreported += 1
                return None
            # A queue that went and came back may have several callbacks of one message waiting.
            waited_for = self._waiting.get(identity)
            if waited_for is None:
                waited_for = self._waiting[identity] = Lock()
                waited_for.acquire()
            return waited_for

    def finish(self, finished: Iterable[tuple[Identity, int]]) -> None:
        """Let callbacks of these messages through, now or when they come.

        Args:
            finished: each with the parent's number of its queue.
        """
        with self._lock:
            for identity, queue in finished:
                # Without a unique id it might be taken for one of another broker.
                if not self._release(identity) and identity[-1]:
                    self._passes.note(identity, queue)

    def answer(self, identity: Identity) -> None:
        """Let the callbacks through that wait for this message; it is no pass for later ones."""
        with self._lock:
            self._release(identity)

    def report(self) -> Mapping[int, int]:
        """Return the highest offset that was passed in each queue since the last report; nothing if it is not worth it."""
        if self._unreported < REPORTED:
            return {}
        with self._lock:
            reached, self._reached, self._unreported = self._reached, {}, 0
        return reached

    def _release(self, identity: Identity) -> bool:
        waited_for = self._waiting.pop(identity, None)
        if waited_for is None:
            return False
        waited_for.release()
        return True
