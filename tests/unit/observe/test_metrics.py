"""What Prometheus reads: our numbers, under labels that no message can choose."""

from datetime import timedelta

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from oncemq.contracts.verdict import Outcome
from oncemq.message.envelope import Delivery, Message
from oncemq.observe.events import RescueStep, TimeLimit
from oncemq.observe.metrics import MAX_CODES, MetricsObserver
from oncemq.observe.state import AppState, BreakerState, ConsumerState, PauseReason, Phase

CANARY = "canary-7Q9z"


@pytest.fixture
def metrics():
    """Return the observer under test."""
    return MetricsObserver()


def samples(metrics):
    """Return the exposition as Prometheus would read it: values by name and label values."""
    families = text_string_to_metric_families(metrics.exposition().decode())
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def delivery():
    """Return a delivery full of canaries."""
    return Delivery(Message("order.paid", CANARY.encode(), headers={"x": CANARY}))


def test_outcomes_are_counted_by_consumer(metrics):
    """Every message of a unit counts under what it came to."""
    metrics.unit_done("award", {Outcome.PROCEED: 90, Outcome.DUPLICATE: 10}, size=100, seconds=0.05)
    metrics.unit_done("award", {Outcome.PROCEED: 5}, size=5, seconds=0.01)
    found = samples(metrics)
    assert found["oncemq_messages_total", "applied", "award"] == 95
    assert found["oncemq_messages_total", "award", "duplicate"] == 10


def test_units_are_measured(metrics):
    """Sizes and seconds are histograms, by consumer."""
    metrics.unit_done("award", {}, size=100, seconds=0.05)
    metrics.unit_done("award", {}, size=1, seconds=0.002)
    found = samples(metrics)
    assert found["oncemq_unit_messages_count", "award"] == 2
    assert found["oncemq_unit_messages_sum", "award"] == 101
    assert found["oncemq_unit_messages_bucket", "1.0", "award"] == 1
    assert found["oncemq_unit_seconds_bucket", "0.05", "award"] == 2


def test_rescue_steps_are_counted(metrics):
    """What the rescue did is counted by step."""
    metrics.unit_done("award", {}, size=3, seconds=0.1, rescue={RescueStep.RERUN: 2, RescueStep.DROP: 1})
    found = samples(metrics)
    assert found["oncemq_rescue_steps_total", "award", "rerun"] == 2
    assert found["oncemq_rescue_steps_total", "award", "drop"] == 1


def test_troubles_are_counted(metrics):
    """Retries, dead letters, pauses and the rest each have a counter."""
    metrics.retried("award", delivery(), next_in=timedelta(1))
    metrics.dead_lettered("award", delivery(), code="no-key")
    metrics.consumer_paused("award", PauseReason.DATABASE)
    metrics.infrastructure_failed("award", tries=1, next_in=timedelta(1), error=OSError())
    metrics.settle_failed("award", 7, OSError())
    metrics.crash_suspect("award", key="k", identity="i", crashes=1)
    metrics.time_limit("award", None, TimeLimit.SOFT, timedelta(1))
    metrics.connection_lost("shop", "award")
    found = samples(metrics)
    assert found["oncemq_retries_total", "award"] == 1
    assert found["oncemq_dead_letters_total", "award", "no-key"] == 1
    assert found["oncemq_pauses_total", "award", "database"] == 1
    assert found["oncemq_infrastructure_failures_total", "award"] == 1
    assert found["oncemq_settle_failures_total", "award"] == 7
    assert found["oncemq_crash_suspects_total", "award"] == 1
    assert found["oncemq_time_limits_total", "award", "soft"] == 1
    assert found["oncemq_connection_losses_total", "award", "shop"] == 1


def test_gauges_are_read_when_asked(metrics):
    """Depths and liveness are those of the moment of the scrape; an unknown depth is left out."""
    rows = (
        ConsumerState(
            "award", subscribed=True, waiting=5, in_flight=9, depth=100, exclusive=True, dead_letters=7
        ),
        ConsumerState("mail", subscribed=True, paused=PauseReason.DATABASE),
    )
    metrics.watch(lambda: AppState(Phase.RUNNING, rows))
    found = samples(metrics)
    assert found["oncemq_waiting_messages", "award"] == 5
    assert found["oncemq_in_flight_messages", "award"] == 9
    assert found["oncemq_broker_messages", "award"] == 100
    assert found["oncemq_dead_letter_messages", "award"] == 7
    assert not {("oncemq_broker_messages", "mail"), ("oncemq_dead_letter_messages", "mail")} & set(found)
    assert found["oncemq_consumer_exclusive", "award"] == 1
    assert (found["oncemq_consumer_live", "award"], found["oncemq_consumer_live", "mail"]) == (1, 0)
    assert found["oncemq_consumer_paused", "mail"] == 1
    assert found["oncemq_app_phase", "running"] == 1
    assert found["oncemq_app_phase", "draining"] == 0


def test_breakers_are_counted_and_shown(metrics):
    """How often each has opened, and whether it is open; a hot key is no label."""
    for phase in ("open", "half-open", "open"):
        metrics.breaker_changed(
            "award", "hot_key", phase, action="warn", share=0.5, above=0.3, messages=9, key=CANARY
        )
    breakers = (BreakerState("hot_key", "open", 0.5), BreakerState("failures", "closed", 0.0))
    metrics.watch(
        lambda: AppState(Phase.RUNNING, (ConsumerState("award", subscribed=True, breakers=breakers),))
    )
    found = samples(metrics)
    assert found["oncemq_breaker_openings_total", "award", "hot_key"] == 2
    assert found["oncemq_breaker_open", "award", "hot_key"] == 1
    assert found["oncemq_breaker_open", "award", "failures"] == 0
    assert CANARY not in metrics.exposition().decode()


def test_a_message_cannot_make_a_time_series(metrics):
    """Nothing of a message or an error is in the exposition, and invented codes are bounded."""
    for number in range(1000):
        metrics.dead_lettered(
            "award", delivery(), code=f"code-{number}", reason=CANARY, error=OSError(CANARY)
        )
    metrics.dead_lettered("award", delivery(), code=f'x"}}\n{CANARY}', reason=CANARY)
    metrics.retried("award", delivery(), next_in=timedelta(1), reason=CANARY, error=OSError(CANARY))
    text = metrics.exposition().decode()
    codes = {name for name in samples(metrics) if name[0] == "oncemq_dead_letters_total"}
    assert CANARY not in text
    assert len(codes) == MAX_CODES + 1
    assert samples(metrics)["oncemq_dead_letters_total", "award", "other"] == 1001 - MAX_CODES


def test_registries_are_private(metrics):
    """Two apps in one process do not share counters, and the global registry stays empty of ours."""
    metrics.retried("award", delivery(), next_in=timedelta(1))
    other = MetricsObserver()
    assert ("oncemq_retries_total", "award") not in samples(other)
    assert not any(family.name.startswith("oncemq") for family in REGISTRY.collect())


def test_figures_of_strategies_are_gauges(metrics):
    """By consumer and by the strategies' own names."""
    row = ConsumerState("award-points", subscribed=True, figures={"redis_hit_rate": 0.5})
    metrics.watch(lambda: AppState(Phase.RUNNING, (row,)))
    assert samples(metrics)["oncemq_strategy_figure", "award-points", "redis_hit_rate"] == 0.5
