"""OpenTelemetry: the metrics of an app as instruments, with the names, labels and numbers that Prometheus has.

Counters and gauges are observed, which means they are read when they are exported; only the two histograms are recorded, once
for each unit.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, Observation
from prometheus_client import Counter as PrometheusCounter

from oncemq.contracts.verdict import Outcome
from oncemq.observe.events import Observer, RescueStep
from oncemq.observe.gauges import GAUGES, Gauge
from oncemq.observe.metrics import SECONDS, SIZES, MetricsObserver
from oncemq.observe.state import AppState, StateSource

_UNITS: Final = {"seconds": "s", "bytes": "By"}
"""OpenTelemetry's units, by the last word of a name."""
_Labels = frozenset[tuple[str, str]]
"""Names of labels with their values."""


class Instruments(Observer):
    """Shows what a `MetricsObserver` counts, and the app's state, to a meter provider.

    Args:
        provider: gets the instruments.
        app: the app's name, an attribute of the instruments' scope.
        metrics: counts.
        process: the number of this worker process, an attribute of every number; None if it has none.
    """

    def __init__(
        self, provider: MeterProvider, app: str, metrics: MetricsObserver, process: int | None = None
    ) -> None:
        self._numbers = _numbers_of(provider, app, metrics)
        self._metrics = metrics
        self._process = {} if process is None else {"process": str(process)}
        self._by_consumer: dict[str, dict[str, str]] = {}

    def watch(self, source: StateSource) -> None:
        """Show the app's numbers from now on."""
        self._numbers.add(self._metrics, source, self._process)

    def close(self) -> None:
        """Show the counters as they are now, and no gauges any more."""
        self._numbers.retire(self._metrics)

    def unit_done(
        self,
        consumer: str,
        counts: Mapping[Outcome, int],  # noqa: ARG002 - counted by `metrics`
        *,
        size: int,
        seconds: float,
        rescue: Mapping[RescueStep, int] | None = None,  # noqa: ARG002
    ) -> None:
        """Record the unit's size and time."""
        attributes = self._by_consumer.get(consumer)
        if attributes is None:
            attributes = self._by_consumer[consumer] = {"consumer": consumer, **self._process}
        self._numbers.sizes.record(size, attributes)
        self._numbers.seconds.record(seconds, attributes)


class _Numbers:
    """The instruments of one app at one provider, in the life of a process.

    An app may be started again in the process, while instruments can be neither removed nor made twice: they stay, and their
    counters go on from where the earlier run ended.
    """

    def __init__(self, meter: Meter, counters: Mapping[str, PrometheusCounter]) -> None:
        self._mutex = Lock()
        self._running: dict[MetricsObserver, tuple[StateSource, Mapping[str, str]]] = {}
        self._ended: dict[str, Counter[_Labels]] = {name: Counter() for name in counters}
        for name, counter in counters.items():
            text = next(iter(counter.collect())).documentation
            meter.create_observable_counter(name, [self._counted(name)], "", text)
        for gauge in GAUGES:
            meter.create_observable_gauge(gauge.name, [self._measured(gauge)], _unit(gauge.name), gauge.text)
        self.sizes = _histogram(meter, *SIZES)
        self.seconds = _histogram(meter, *SECONDS)

    def add(self, metrics: MetricsObserver, source: StateSource, more: Mapping[str, str]) -> None:
        """Show the numbers of a run from now on, with `more` labels."""
        with self._mutex:
            self._running[metrics] = source, more

    def retire(self, metrics: MetricsObserver) -> None:
        """Keep what a run has counted; may be called twice."""
        with self._mutex:
            if metrics not in self._running:
                return
            _, more = self._running.pop(metrics)
            for name, ended in self._ended.items():
                ended.update(_counts(metrics, name, more))

    def _counted(self, name: str) -> Callable[[CallbackOptions], list[Observation]]:
        def observe(_: CallbackOptions) -> list[Observation]:
            with self._mutex:
                totals = Counter(self._ended[name])
                for metrics, (_source, more) in self._running.items():
                    totals.update(_counts(metrics, name, more))
            return [Observation(count, dict(labels)) for labels, count in totals.items()]

        return observe

    def _measured(self, gauge: Gauge) -> Callable[[CallbackOptions], list[Observation]]:
        def observe(_: CallbackOptions) -> list[Observation]:
            with self._mutex:
                running = list(self._running.values())
            return [point for source, more in running for point in _observed(gauge, source(), more)]

        return observe


# By provider, since it keeps instruments as long as it lives, and returns the ones it has for a name that it knows.
_known: Final[WeakKeyDictionary[MeterProvider, dict[str, _Numbers]]] = WeakKeyDictionary()
_mutex: Final = Lock()


def _numbers_of(provider: MeterProvider, app: str, metrics: MetricsObserver) -> _Numbers:
    with _mutex:
        apps = _known.setdefault(provider, {})
        if app not in apps:
            meter = provider.get_meter("oncemq", attributes={"oncemq.app": app})
            apps[app] = _Numbers(meter, metrics.counters)
        return apps[app]


def _counts(metrics: MetricsObserver, name: str, more: Mapping[str, str]) -> dict[_Labels, float]:
    """Return what one counter has counted, by its labels."""
    return {
        frozenset({**sample.labels, **more}.items()): sample.value
        for family in metrics.counters[name].collect()
        for sample in family.samples
        if sample.name == name
    }


def _observed(gauge: Gauge, state: AppState, more: Mapping[str, str]) -> Iterator[Observation]:
    for labels, value in gauge.read(state):
        yield Observation(value, {**dict(zip(gauge.labels, labels, strict=True)), **more})


def _histogram(meter: Meter, name: str, text: str, bounds: tuple[float, ...]) -> Histogram:
    return meter.create_histogram(name, _unit(name), text, explicit_bucket_boundaries_advisory=bounds)


def _unit(name: str) -> str:
    return _UNITS.get(name.rpartition("_")[2], "")
