"""What OpenTelemetry reads: the numbers of Prometheus, under the same names."""

import re
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

from oncemq.contracts.verdict import Outcome
from oncemq.observe.metrics import MetricsObserver
from oncemq.observe.monitor import Monitor
from oncemq.observe.otel import supervisor
from oncemq.observe.otel.instruments import Instruments
from oncemq.observe.state import AppState, BreakerState, ConsumerState, OutboxState, PauseReason, Phase
from oncemq.observe.worker_counts import WorkerCounts
from oncemq.testing.fake_clock import FakeClock

PAGE = Path(__file__).parents[3] / "docs/metrics.md"
STATE = AppState(
    Phase.RUNNING,
    (
        ConsumerState(
            "award",
            subscribed=True,
            depth=7,
            parked=3,
            parked_seconds=2.5,
            unknown_claims=1,
            held_keys=2,
            dead_letters=4,
            figures={"hit_rate": 0.5},
            breakers=(BreakerState("duplicates", "open", 0.9),),
        ),
    ),
    OutboxState(1, 2.0, 3, 4, 5, 6.0),
    clock_skew=0.25,
    ledger_bytes=4096,
)


class Service:
    """A service with a meter provider, in which an app runs."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader])

    def start(self, app: str = "shop", process: int | None = None) -> Monitor:
        """Return the monitor of an app that has started."""
        monitor = Monitor(
            None,
            FakeClock(),
            instruments=lambda metrics: Instruments(self.provider, app, metrics, process),
        )
        monitor.serve(lambda: STATE)
        return monitor

    def read(self) -> dict[tuple[str, ...], float]:
        """Return all numbers by the scope's app, the metric's name and the values of its labels."""
        data = self.reader.get_metrics_data()
        return {
            (str(scope.scope.attributes["oncemq.app"]), metric.name, *sorted(point.attributes.values())): (
                point.value if hasattr(point, "value") else point.sum
            )
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        }


@pytest.fixture
def service() -> Service:
    """Return a service."""
    return Service()


def exercise(metrics) -> None:
    """Let an observer see something of everything."""
    metrics.unit_done("award", {Outcome.PROCEED: 90, Outcome.DUPLICATE: 10}, size=100, seconds=0.05)
    metrics.consumer_paused("award", PauseReason.DATABASE)
    metrics.settle_failed("award", 7, OSError())
    metrics.connection_lost("shop", "award")
    metrics.outbox_refused("paid", 2, tries=1, next_in=None, error=OSError())


def test_all_numbers_are_those_of_prometheus(service: Service) -> None:
    """Names, labels and values are the same, but for a histogram's, which have its sum."""
    prometheus = MetricsObserver()
    prometheus.watch(lambda: STATE)
    exercise(prometheus)
    exercise(service.start().observer)
    expected = {
        ("shop", sample.name.removesuffix("_sum"), *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(prometheus.exposition().decode())
        for sample in family.samples
        if not sample.name.endswith(("_created", "_bucket", "_count"))
    }
    memory = ("shop", "oncemq_process_memory_bytes")
    found = service.read()
    assert found.pop(memory) > 0
    del expected[memory]
    assert found == expected


def test_every_metric_of_the_page_is_an_instrument(service: Service) -> None:
    """Only what a supervisor counts is not there: it exports nothing itself."""
    monitor = service.start()
    exercise(monitor.observer)
    documented = set(re.findall(r"^\| `(oncemq_\w+)`", PAGE.read_text(), re.MULTILINE))
    metrics = MetricsObserver()
    shown = {name for _, name, *_ in service.read()} | set(metrics.counters)
    assert documented - shown == {"oncemq_worker_restarts_total", "oncemq_worker_recycles_total"}
    assert shown - documented == set()


def test_a_unit_is_counted_in_the_buckets_of_prometheus(service: Service) -> None:
    """A collector that turns them into Prometheus' histograms has the same ones."""
    service.start().observer.unit_done("award", {}, size=3, seconds=0.02)
    points = {
        metric.name: metric.data.data_points[0]
        for scope in service.reader.get_metrics_data().resource_metrics[0].scope_metrics
        for metric in scope.metrics
        if metric.name.startswith("oncemq_unit_")
    }
    assert points["oncemq_unit_messages"].explicit_bounds == (1, 2, 5, 10, 20, 50, 100, 200, 500)
    assert list(points["oncemq_unit_messages"].bucket_counts) == [0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    assert points["oncemq_unit_seconds"].explicit_bounds[0] == 0.001
    assert points["oncemq_unit_seconds"].sum == 0.02


def test_counters_of_an_app_that_starts_again_go_on(service: Service) -> None:
    """A counter never goes back in the life of a process; between the runs nothing is measured."""
    for total in (90, 180):
        monitor = service.start()
        exercise(monitor.observer)
        assert service.read()["shop", "oncemq_messages_total", "applied", "award"] == total
        monitor.close()
        monitor.close()
        found = service.read()
        assert found["shop", "oncemq_messages_total", "applied", "award"] == total
        assert ("shop", "oncemq_consumer_live", "award") not in found


def test_apps_of_one_process_are_told_apart(service: Service) -> None:
    """Each has a scope with its name."""
    for app in ("shop", "post"):
        exercise(service.start(app).observer)
    found = service.read()
    assert [found[app, "oncemq_outbox_messages"] for app in ("shop", "post")] == [1, 1]
    assert found["shop", "oncemq_messages_total", "applied", "award"] == 90


def test_worker_processes_are_told_apart(service: Service) -> None:
    """The label is the one by which a supervisor's endpoint tells them apart."""
    exercise(service.start(process=3).observer)
    found = service.read()
    assert found["shop", "oncemq_messages_total", "3", "applied", "award"] == 90
    assert found["shop", "oncemq_outbox_messages", "3"] == 1
    assert found["shop", "oncemq_unit_messages", "3", "award"] == 100


def test_recycles_are_instruments_with_the_names_and_numbers_of_prometheus(monkeypatch):
    """Those counted before and after the instruments were made, by number, limit and success."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr(supervisor, "current_provider", lambda: provider)
    counts = WorkerCounts(1)
    counts.recycled(0, "memory", failed=False)
    with supervisor.counts_exported("shop", counts):
        counts.recycled(1, "age", failed=True)
        found = {
            (metric.name, *point.attributes.values()): point.value
            for resource in reader.get_metrics_data().resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        }
    assert found == {
        ("oncemq_worker_restarts_total", "0"): 0,
        ("oncemq_worker_recycles_total", "0", "messages", "no"): 0,
        ("oncemq_worker_recycles_total", "0", "memory", "no"): 1,
        ("oncemq_worker_recycles_total", "0", "age", "no"): 0,
        ("oncemq_worker_recycles_total", "1", "age", "yes"): 1,
    }
