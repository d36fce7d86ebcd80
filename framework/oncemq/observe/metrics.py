"""Metrics for Prometheus; needs the extra `metrics`, and has a registry of its own.

Labels come from the configuration and from fixed vocabularies, never from a message: a hostile message
cannot create a time series.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from oncemq.contracts.verdict import Outcome
from oncemq.message.envelope import Delivery
from oncemq.observe.events import Observer, RescueStep, TimeLimit
from oncemq.observe.gauges import GAUGES
from oncemq.observe.state import PauseReason, StateSource

SIZES: Final = "oncemq_unit_messages", "Messages in a unit.", (1, 2, 5, 10, 20, 50, 100, 200, 500)
"""A histogram: name, description, upper bounds of its buckets."""
SECONDS: Final = (
    "oncemq_unit_seconds",
    "Time from a unit's start to its settlement.",
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
"""A histogram: name, description, upper bounds of its buckets."""
MAX_CODES = 50
"""Dead-letter codes with a time series of their own; further codes of a strategy count as `other`."""

_CODE = re.compile(r"[a-z][a-z0-9-]{0,31}")


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
        self._counters: dict[str, Counter] = {}
        self._messages = self._counter("messages", "Messages by what they came to in a unit.", "outcome")
        self._rescues = self._counter("rescue_steps", "Steps to save the healthy part of a unit.", "step")
        self._retries = self._counter("retries", "Messages that failed and were sent to come again.")
        self._dead = self._counter("dead_letters", "Messages that were dead-lettered, by reason.", "code")
        self._answers = self._counter("answers", "Answers to requests, by what became of them.", "answer")
        self._infrastructure = self._counter("infrastructure_failures", "Runs that the database failed.")
        self._settle_failures = self._counter("settle_failures", "Settlements that the broker did not take.")
        self._losses = self._counter("connection_losses", "Lost broker connections.", "broker")
        self._pauses = self._counter("pauses", "Pauses of a consumer, by reason.", "reason")
        self._breakers = self._counter("breaker_openings", "Times that a breaker has opened.", "breaker")
        self._suspects = self._counter("crash_suspects", "Messages during which a process died.")
        self._limits = self._counter("time_limits", "Handlers over their time limit.", "limit")
        self._outbox = self._counted(
            "outbox_refusals", "Messages of the outbox that a broker did not take, each time.", "topic"
        )
        self._unroutable = self._counted(
            "outbox_unroutable",
            "Published messages for which a broker had no place, by what became of them.",
            "topic",
            "outcome",
        )
        self._sizes = self._histogram(*SIZES)
        self._seconds = self._histogram(*SECONDS)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return self._counted(name, text, "consumer", *labels)

    def _counted(self, name: str, text: str, *labels: str) -> Counter:
        counter = Counter(f"oncemq_{name}", text, labels, registry=self._registry)
        self._counters[f"oncemq_{name}_total"] = counter
        return counter

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, ("consumer",), registry=self._registry, buckets=buckets)

    def watch(self, source: StateSource) -> None:
        """Export the gauges of this app from now on."""
        self._states.source = source

    @property
    def counters(self) -> Mapping[str, Counter]:
        """The counters by their name, such as `oncemq_messages_total`."""
        return self._counters

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

    def answered(self, consumer: str, what: str, count: int) -> None:
        """Count them."""
        self._answers.labels(consumer, what).inc(count)

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
        for gauge in GAUGES:
            family = GaugeMetricFamily(gauge.name, gauge.text, labels=gauge.labels)
            for labels, value in gauge.read(state):
                family.add_metric(labels, value)
            if family.samples or gauge.labels:
                yield family
