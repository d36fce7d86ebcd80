"""Which background work an app needs: purging its records, and what its strategies ask for."""

from datetime import timedelta

from oncemq.observe.observers import Observers
from oncemq.run.plan import AppPlan
from oncemq.run.relay import Relay
from oncemq.upkeep.purging import purge_tasks
from oncemq.upkeep.runner import Upkeep

_RELAY_EVERY = timedelta(seconds=2)
_LOOK_EVERY = timedelta(minutes=1)


def start_upkeep(plan: AppPlan, observers: Observers, relay: Relay | None) -> Upkeep | None:
    """Start the background runner; None without a database."""
    if plan.engine is None:
        return None
    tasks = [
        task for consumer in plan.consumers for strategy in consumer.strategies for task in strategy.upkeep()
    ]
    if relay is not None:
        # Where nobody publishes now, a former version of the app may have.
        tasks.append(relay.task(every=_RELAY_EVERY if plan.publishes else _LOOK_EVERY))
    upkeep = Upkeep(plan.engine, [*purge_tasks(plan.keep, plan.clock), *tasks], plan.clock, observers.failed)
    upkeep.start()
    return upkeep
