"""OpenTelemetry in the process of a supervisor: what it counts of its worker processes, as instruments."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from oncemq.observe.otel.export import current_provider, exported
from oncemq.observe.worker_counts import WorkerCounter, WorkerCounts

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation


@contextmanager
def counts_exported(app: str, counts: WorkerCounts) -> Iterator[None]:
    """Export the counts meanwhile, as worker processes export theirs; at the end the last numbers are sent.

    Args:
        app: the app's name.
        counts: the supervisor's.
    """
    with exported(app, traces=False):
        provider = current_provider()
        if provider is not None:
            meter = provider.get_meter("oncemq", attributes={"oncemq.app": app})
            for counter, _ in counts.read():
                meter.create_observable_counter(counter.name, [_observing(counts, counter)], "", counter.text)
        yield


def _observing(
    counts: WorkerCounts, wanted: WorkerCounter
) -> "Callable[[CallbackOptions], list[Observation]]":
    from opentelemetry.metrics import Observation  # noqa: PLC0415 - optional

    def observe(_: Any) -> list[Observation]:
        return [
            Observation(count, dict(zip(counter.labels, labels, strict=True)))
            for counter, numbers in counts.read()
            if counter is wanted
            for labels, count in numbers.items()
        ]

    return observe
