"""Keeps leased deliveries ours while they wait or run."""

from collections.abc import Mapping
from datetime import timedelta

from oncemq.engine.consumer_runtime import Crew
from oncemq.engine.plan import AppPlan
from oncemq.observe.observers import Observers

_EXTEND_WHEN_LEFT = 15.0
_EXTEND_BY = timedelta(seconds=60)


def extend_leases(plan: AppPlan, crews: Mapping[str, Crew], observers: Observers) -> None:
    """Extend what would expire within the next seconds; what cannot be extended is void by itself."""
    soon = plan.clock.monotonic() + _EXTEND_WHEN_LEFT
    for crew in crews.values():
        consumer = crew.consumer
        if not consumer.adapter.capabilities.lease:
            continue
        held = [*consumer.running(), *consumer.scheduler.snapshot()]
        ending = [one for one in held if one.expires_at is not None and one.expires_at < soon]
        if not ending:
            continue
        try:
            consumer.adapter.extend(ending, _EXTEND_BY)
        except Exception as error:
            observers.failed("extending leases", error)
