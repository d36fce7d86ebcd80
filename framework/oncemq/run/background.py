"""Which background work an app needs: purging its records, and what its strategies ask for."""

from collections.abc import Sequence
from datetime import timedelta

from oncemq.observe.observers import Observers
from oncemq.run.plan import AppPlan
from oncemq.run.relay import Relay
from oncemq.strategy import UpkeepTask
from oncemq.upkeep.purging import purge_tasks
from oncemq.upkeep.runner import Upkeep

_RELAY_EVERY = timedelta(seconds=2)
_LOOK_EVERY = timedelta(minutes=1)


def start_upkeep(
    plan: AppPlan, observers: Observers, relay: Relay | None, more: Sequence[UpkeepTask] = ()
) -> Upkeep | None:
    """Start the background runner, with the tasks `more` besides; None without a database."""
    if plan.engine is None:
        return None
    tasks = [
        task for consumer in plan.consumers for strategy in consumer.strategies for task in strategy.upkeep()
    ]
    if relay is not None:
        # Where nobody publishes now, a former version of the app may have.
        tasks.append(relay.task(every=_RELAY_EVERY if plan.publishes else _LOOK_EVERY))
    tasks += [*purge_tasks(plan.keep, plan.clock), *more]
    upkeep = Upkeep(plan.engine, tasks, plan.clock, observers.failed)
    upkeep.start()
    return upkeep
