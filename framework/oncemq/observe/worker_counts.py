"""Counts what a supervisor does with its worker processes: restarts and recycles."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class WorkerCounter:
    """A counter of the supervisor, as each place that shows it declares it.

    Args:
        name: ends with `_total`.
        text: its meaning.
        labels: names of its labels.
    """

    name: str
    text: str
    labels: tuple[str, ...]


RESTARTS: Final = WorkerCounter(
    "oncemq_worker_restarts_total", "Worker processes that died and were started again.", ("process",)
)
RECYCLES: Final = WorkerCounter(
    "oncemq_worker_recycles_total",
    "Worker processes that a successor replaced, and successors that failed, by the limit that was reached.",
    ("process", "reason", "failed"),
)


class WorkerCounts:
    """What has become of a supervisor's worker processes; each number begins at zero.

    Args:
        count: the number of worker processes.
    """

    def __init__(self, count: int) -> None:
        self._restarts = dict.fromkeys(range(count), 0)
        self._recycles = {
            (index, reason, "no"): 0 for index in range(count) for reason in ("messages", "memory", "age")
        }

    def restarted(self, index: int) -> None:
        """Count that worker process number `index` died, and another one takes its place."""
        self._restarts[index] = self._restarts.get(index, 0) + 1

    def recycled(self, index: int, reason: str, *, failed: bool) -> None:
        """Count that worker process number `index` was recycled, or that its successor failed."""
        which = index, reason, "yes" if failed else "no"
        self._recycles[which] = self._recycles.get(which, 0) + 1

    def read(self) -> Iterator[tuple[WorkerCounter, Mapping[tuple[str, ...], int]]]:
        """Yield each counter with its numbers by the values of its labels; from any thread."""
        yield RESTARTS, {(str(index),): count for index, count in self._restarts.copy().items()}
        yield (
            RECYCLES,
            {
                (str(index), reason, failed): count
                for (index, reason, failed), count in self._recycles.copy().items()
            },
        )
