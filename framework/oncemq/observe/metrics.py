"""Metrics for Prometheus; needs the extra `metrics`, and has a registry of its own.

Labels come from the configuration and from fixed vocabularies, never from a message: a hostile message
cannot create a time series.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from oncemq.common.memory import resident_bytes
from oncemq.contracts.verdict import Outcome
from oncemq.message.envelope import Delivery
from oncemq.observe.events import Observer, RescueStep, TimeLimit
from oncemq.observe.state import AppState, ConsumerState, PauseReason, Phase, StateSource

MAX_CODES = 50
"""Dead-letter codes with a time series of their own; further codes of a strategy count as `other`."""

_CODE = re.compile(r"[a-z][a-z0-9-]{0,31}")
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class MetricsObserver(Observer):
    """Counts events, and reads the app's state when it is scraped.

    Attributes:
        content_type: of the result of `exposition`.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._states = _States()
        self._registry.register(self._states)
        self._codes: set[str] = set()
        self._messages = self._counter("messages", "Messages by what they came to in a unit.", "outcome")
        self._rescues = self._counter("rescue_steps", "Steps to save the healthy part of a unit.", "step")
        self._retries = self._counter("retries", "Messages that failed and were sent to come again.")
        self._dead = self._counter("dead_letters", "Messages that were dead-lettered, by reason.", "code")
        self._infrastructure = self._counter("infrastructure_failures", "Runs that the database failed.")
        self._settle_failures = self._counter("settle_failures", "Settlements that the broker did not take.")
        self._losses = self._counter("connection_losses", "Lost broker connections.", "broker")
        self._pauses = self._counter("pauses", "Pauses of a consumer, by reason.", "reason")
        self._breakers = self._counter("breaker_openings", "Times that a breaker has opened.", "breaker")
        self._suspects = self._counter("crash_suspects", "Messages during which a process died.")
        self._limits = self._counter("time_limits", "Handlers over their time limit.", "limit")
        self._outbox = Counter(
            "oncemq_outbox_refusals",
            "Messages of the outbox that a broker did not take, each time.",
            ("topic",),
            registry=self._registry,
        )
        self._unroutable = Counter(
            "oncemq_outbox_unroutable",
            "Published messages for which a broker had no place, by what became of them.",
            ("topic", "outcome"),
            registry=self._registry,
        )
        self._sizes = self._histogram("unit_messages", "Messages in a unit.", _SIZES)
        self._seconds = self._histogram(
            "unit_seconds", "Time from a unit's start to its settlement.", _SECONDS
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"oncemq_{name}", text, ("consumer", *labels), registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"oncemq_{name}", text, ("consumer",), registry=self._registry, buckets=buckets)

    def watch(self, source: StateSource) -> None:
        """Export the gauges of this app from now on."""
        self._states.source = source

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def consumer_paused(
        self,
        consumer: str,
        reason: PauseReason,
        *,
        retry_in: timedelta | None = None,  # noqa: ARG002 - the log says it
        error: BaseException | None = None,  # noqa: ARG002
    ) -> None:
        """Count it."""
        self._pauses.labels(consumer, reason.value).inc()

    def breaker_changed(self, consumer: str, breaker: str, phase: str, **_: Any) -> None:
        """Count its openings."""
        if phase == "open":
            self._breakers.labels(consumer, breaker).inc()

    def unit_done(
        self,
        consumer: str,
        counts: Mapping[Outcome, int],
        *,
        size: int,
        seconds: float,
        rescue: Mapping[RescueStep, int] | None = None,
    ) -> None:
        """Count its messages and rescues, measure its size and time."""
        for outcome, count in counts.items():
            self._messages.labels(consumer, outcome.value).inc(count)
        self._sizes.labels(consumer).observe(size)
        self._seconds.labels(consumer).observe(seconds)
        for step, count in (rescue or {}).items():
            self._rescues.labels(consumer, step.value).inc(count)

    def infrastructure_failed(
        self,
        consumer: str,
        *,
        tries: int,  # noqa: ARG002
        next_in: timedelta,  # noqa: ARG002
        error: BaseException,  # noqa: ARG002
    ) -> None:
        """Count it."""
        self._infrastructure.labels(consumer).inc()

    def retried(
        self,
        consumer: str,
        delivery: Delivery,  # noqa: ARG002
        *,
        next_in: timedelta,  # noqa: ARG002
        reason: str = "",  # noqa: ARG002
        error: BaseException | None = None,  # noqa: ARG002
    ) -> None:
        """Count it."""
        self._retries.labels(consumer).inc()

    def dead_lettered(
        self,
        consumer: str,
        delivery: Delivery,  # noqa: ARG002
        *,
        code: str,
        reason: str = "",  # noqa: ARG002
        error: BaseException | None = None,  # noqa: ARG002
    ) -> None:
        """Count it by its code."""
        self._dead.labels(consumer, self._known(code)).inc()

    def _known(self, code: str) -> str:
        if code not in self._codes:
            if len(self._codes) >= MAX_CODES or not _CODE.fullmatch(code):
                return "other"
            self._codes.add(code)
        return code

    def settle_failed(self, consumer: str, count: int, error: BaseException) -> None:  # noqa: ARG002
        """Count them."""
        self._settle_failures.labels(consumer).inc(count)

    def crash_suspect(self, consumer: str, *, key: str, identity: str, crashes: int) -> None:  # noqa: ARG002
        """Count it."""
        self._suspects.labels(consumer).inc()

    def time_limit(
        self,
        consumer: str,
        delivery: Delivery | None,  # noqa: ARG002
        which: TimeLimit,
        limit: timedelta,  # noqa: ARG002
    ) -> None:
        """Count it."""
        self._limits.labels(consumer, which.value).inc()

    def outbox_refused(
        self,
        topic: str,
        count: int,
        *,
        tries: int,  # noqa: ARG002
        next_in: timedelta,  # noqa: ARG002
        error: BaseException,  # noqa: ARG002
    ) -> None:
        """Count them by their topic."""
        self._outbox.labels(topic).inc(count)

    def unroutable(
        self,
        topic: str,
        message_ids: Sequence[str],
        *,
        dropped: bool,
        error: BaseException,  # noqa: ARG002
    ) -> None:
        """Count them by topic and by action."""
        self._unroutable.labels(topic, "dropped" if dropped else "dead_letter").inc(len(message_ids))

    def connection_lost(self, broker: str, consumer: str) -> None:
        """Count it."""
        self._losses.labels(consumer, broker).inc()


class _States(Collector):
    """Gauges that are read only when scraped."""

    def __init__(self) -> None:
        self.source: StateSource | None = None

    def describe(self) -> list[Metric]:
        """Return nothing, so that registration does not read the state."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the current gauges."""
        if self.source is None:
            return
        state = self.source()
        yield _phase(state)
        yield GaugeMetricFamily(
            "oncemq_process_memory_bytes", "Memory that the process occupies.", resident_bytes()
        )
        if state.outbox is not None:
            yield GaugeMetricFamily(
                "oncemq_outbox_messages", "Published messages that wait to be sent.", state.outbox.messages
            )
            yield GaugeMetricFamily(
                "oncemq_outbox_oldest_seconds", "Age of the oldest of them.", state.outbox.oldest_seconds
            )
            yield GaugeMetricFamily(
                "oncemq_outbox_refused_messages",
                "Those that a broker has not taken at least once.",
                state.outbox.refused,
            )
            yield GaugeMetricFamily(
                "oncemq_outbox_dead_letters",
                "Messages that a broker had no place for, kept until a person retries or drops them.",
                state.outbox.dead,
            )
            yield GaugeMetricFamily(
                "oncemq_delayed_messages", "Messages that were published for later.", state.outbox.delayed
            )
            yield GaugeMetricFamily(
                "oncemq_delayed_late_seconds",
                "How long the first of them has been due.",
                state.outbox.late_seconds,
            )
        if state.clock_skew is not None:
            yield GaugeMetricFamily(
                "oncemq_clock_skew_seconds",
                "By how much this machine's clock is ahead of the database's.",
                state.clock_skew,
            )
        if state.ledger_bytes is not None:
            yield GaugeMetricFamily(
                "oncemq_ledger_bytes",
                "Size of the ledger's tables and indexes; on SQLite of the whole file.",
                state.ledger_bytes,
            )
        for name, text, read in _GAUGES:
            yield _gauge(state, name, text, read)
        yield _breakers(state)
        yield _figures(state)


_GAUGES: tuple[tuple[str, str, Callable[[ConsumerState], float | None]], ...] = (
    ("consumer_live", "1 while the consumer is subscribed and not paused.", lambda s: s.live),
    ("consumer_subscribed", "1 while the broker sends it messages.", lambda s: s.subscribed),
    ("consumer_paused", "1 while it is paused.", lambda s: s.paused is not None),
    ("consumer_exclusive", "1 while it runs one unit at a time after deadlocks.", lambda s: s.exclusive),
    ("waiting_messages", "Messages in this process that could run or are running.", lambda s: s.waiting),
    ("in_flight_messages", "Deliveries that are not settled yet.", lambda s: s.in_flight),
    ("broker_messages", "Messages that wait at the broker.", lambda s: s.depth),
    (
        "dead_letter_messages",
        "Dead letters that are at the broker or in the ledger.",
        lambda s: s.dead_letters,
    ),
    ("parked_messages", "Messages that wait in the ledger for their turn.", lambda s: s.parked),
    ("parked_oldest_seconds", "How long the oldest of them has waited.", lambda s: s.parked_seconds),
    (
        "unknown_claims",
        "External effects of which it is unknown whether they happened.",
        lambda s: s.unknown_claims,
    ),
)


def _phase(state: AppState) -> Metric:
    family = GaugeMetricFamily("oncemq_app_phase", "1 for the phase the app is in.", labels=["phase"])
    for phase in Phase:
        family.add_metric([phase.value], float(phase is state.phase))
    return family


def _breakers(state: AppState) -> Metric:
    family = GaugeMetricFamily(
        "oncemq_breaker_open",
        "1 while a breaker of the consumer is open or half open in this process.",
        labels=["consumer", "breaker"],
    )
    for row in state.consumers:
        for breaker in row.breakers:
            family.add_metric([row.consumer, breaker.kind], float(breaker.phase != "closed"))
    return family


def _figures(state: AppState) -> Metric:
    family = GaugeMetricFamily(
        "oncemq_strategy_figure",
        "What a consumer's strategies measure about themselves in this process.",
        labels=["consumer", "figure"],
    )
    for row in state.consumers:
        for name, value in row.figures.items():
            family.add_metric([row.consumer, name], value)
    return family


def _gauge(state: AppState, name: str, text: str, read: Callable[[ConsumerState], float | None]) -> Metric:
    family = GaugeMetricFamily(f"oncemq_{name}", text, labels=["consumer"])
    for row in state.consumers:
        value = read(row)
        if value is not None:
            family.add_metric([row.consumer], float(value))
    return family
