"""Coalesces what several threads ask for at the same time: one commit, or one round trip, for all of them."""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Generic, TypeVar

Job = TypeVar("Job")
Answer = TypeVar("Answer")

_MOST = 100
"""Jobs at once; more would keep the first ones waiting."""


class _Place(Generic[Job, Answer]):
    """A job in the queue; its thread waits for `called`, unless it goes first."""

    __slots__ = ("alone", "answers", "called", "job")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.answers: list[Answer] = []
        self.alone = False
        self.called = Lock()
        self.called.acquire()


class Together(Generic[Job, Answer]):
    """Gathers jobs while earlier ones are being done; nobody waits in order to be more.

    Whoever comes when nothing is being done does it at once. The others are done by one of them, afterwards. When
    several fail together, each is done by itself: one that is at fault costs the others no more than time.

    Args:
        do: does all jobs, and returns an answer for each; called by whichever thread it is. What it fails at is asked of
            it again, job by job and from several threads, so a job must bear being done twice.
    """

    def __init__(self, do: Callable[[Sequence[Job]], Sequence[Answer]]) -> None:
        self._do = do
        self._lock = Lock()
        self._waiting: list[_Place[Job, Answer]] = []
        self._busy = False

    def ask(self, job: Job) -> Answer:
        """Return the answer to `job`.

        Raises:
            Exception: what `do` raised for this job alone.
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
        """Do what is waiting; where that fails, and it was several jobs, each is left to its own thread."""
        with self._lock:
            batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
        try:
            answers = self._do([one.job for one in batch])
            for one, answer in zip(batch, answers, strict=True):
                one.answers.append(answer)
        except Exception:
            if len(batch) == 1:
                raise
        finally:
            self._hand_over()
            for one in batch:
                one.alone = True
                one.called.release()

    def _hand_over(self) -> None:
        with self._lock:
            self._busy = bool(self._waiting)
            if self._waiting:
                self._waiting[0].called.release()
