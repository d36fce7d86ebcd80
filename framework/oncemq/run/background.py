"""Which background work an app needs: purging its records, and what its strategies ask for."""

from oncemq.observe.observers import Observers
from oncemq.run.plan import AppPlan
from oncemq.upkeep.purging import purge_tasks
from oncemq.upkeep.runner import Upkeep


def start_upkeep(plan: AppPlan, observers: Observers) -> Upkeep | None:
    """Start the background runner; None without a database."""
    if plan.engine is None:
        return None
    tasks = [
        task for consumer in plan.consumers for strategy in consumer.strategies for task in strategy.upkeep()
    ]
    upkeep = Upkeep(plan.engine, [*purge_tasks(plan.keep, plan.clock), *tasks], plan.clock, observers.failed)
    upkeep.start()
    return upkeep
