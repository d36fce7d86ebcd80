"""Coalesces concurrent requests of several threads into one commit or one round trip."""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Generic, TypeVar

Job = TypeVar("Job")
Answer = TypeVar("Answer")

_MOST = 100
"""Jobs per batch; more would delay the first ones."""


class _Place(Generic[Job, Answer]):
    """A job in the queue; its thread waits for `called`, unless it leads."""

    __slots__ = ("alone", "answers", "called", "job")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.answers: list[Answer] = []
        self.alone = False
        self.called = Lock()
        self.called.acquire()


class Together(Generic[Job, Answer]):
    """Gathers jobs while earlier ones are running; no job waits in order to enlarge a batch.

    A job that arrives when nothing is running runs at once. The others are run by one of their threads, afterwards. When
    several fail together, each runs alone: a faulty job costs the others only time.

    Args:
        do: runs all jobs, and returns an answer for each; called by any of the threads. After a failure it is called
            again, job by job and from several threads, so a job must be safe to run twice.
    """

    def __init__(self, do: Callable[[Sequence[Job]], Sequence[Answer]]) -> None:
        self._do = do
        self._lock = Lock()
        self._waiting: list[_Place[Job, Answer]] = []
        self._busy = False

    def ask(self, job: Job) -> Answer:
        """Return the answer to `job`.

        Raises:
            Exception: the error of `do` for this job alone.
        """
        mine = _Place[Job, Answer](job)
        with self._lock:
            self._waiting.append(mine)
            first, self._busy = not self._busy, True
        if not first:
            mine.called.acquire()
        if not mine.answers and not mine.alone:
            self._lead()
        return mine.answers[0] if mine.answers else self._do([job])[0]

    def _lead(self) -> None:
        """Run the waiting jobs; if several fail together, each is left to its own thread."""
        with self._lock:
            batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
        try:
            answers = self._do([place.job for place in batch])
            for place, answer in zip(batch, answers, strict=True):
                place.answers.append(answer)
        except Exception:
            if len(batch) == 1:
                raise
        finally:
            self._hand_over()
            for place in batch:
                place.alone = True
                place.called.release()

    def _hand_over(self) -> None:
        with self._lock:
            self._busy = bool(self._waiting)
            if self._waiting:
                self._waiting[0].called.release()
