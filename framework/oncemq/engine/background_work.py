"""Background work of an app: purging its records, and the tasks of its strategies."""

from collections.abc import Collection, Sequence
from datetime import timedelta

from oncemq.contracts.strategy import UpkeepTask
from oncemq.engine.consumer_runtime import ConsumerRuntime
from oncemq.engine.outbox.relay import LOOK_FOR_DUE, Relay
from oncemq.engine.plan import AppPlan
from oncemq.ledger.coordination.broadcast import consumer_of
from oncemq.observe.observers import Observers
from oncemq.upkeep.claims import body_purges
from oncemq.upkeep.generations import generation_tasks
from oncemq.upkeep.instances import instance_tasks
from oncemq.upkeep.purging import purge_tasks
from oncemq.upkeep.runner import Upkeep

_RELAY_EVERY = timedelta(seconds=2)
_LOOK_EVERY = timedelta(minutes=1)
_LOOK_FOR_DUE_OF_OTHERS = timedelta(seconds=5)
"""Without publishers here: a web service of the app, which may have ended, publishes for later, too."""


def start_upkeep(
    plan: AppPlan, observers: Observers, relays: Sequence[Relay], crews: Collection[ConsumerRuntime]
) -> list[Upkeep]:
    """Start the background runners, one for each database."""
    broadcasts = {
        consumer_of(each.scope): plan.keep[each.scope]
        for each in plan.consumers
        if each.subscription.broadcast is not None
    }
    runners = [
        Upkeep(
            engine,
            [*tasks_of(plan, relay, crews, shard), *instance_tasks(broadcasts, plan.clock, observers.warned)],
            plan.clock,
            observers.failed,
        )
        for shard, (engine, relay) in enumerate(zip(plan.engines, relays, strict=True))
    ]
    for runner in runners:
        runner.start()
    return runners


def tasks_of(plan: AppPlan, relay: Relay, crews: Collection[ConsumerRuntime], shard: int) -> list[UpkeepTask]:
    """Return the background tasks on one database."""
    tasks = [
        task
        for consumer in plan.consumers
        if not consumer.place  # all topics of a consumer have the same rows
        for strategy in consumer.strategies_on(shard)
        for task in strategy.upkeep()
    ]
    # Even without publishers now, a former version of the app may have left messages.
    tasks.append(relay.task(every=_RELAY_EVERY if plan.publishes else _LOOK_EVERY))
    tasks.append(relay.due_task(every=LOOK_FOR_DUE if plan.publishes else _LOOK_FOR_DUE_OF_OTHERS))
    tasks += generation_tasks(plan.generations, plan.keep)
    if shard == 0:
        tasks += body_purges(
            plan.claims, plan.name, [consumer.scope for consumer in plan.consumers], plan.engines
        )
    return [*purge_tasks(plan.name, plan.keep, plan.clock), *tasks, *_of(crews, shard)]


def _of(crews: Collection[ConsumerRuntime], shard: int) -> list[UpkeepTask]:
    return [task for crew in crews for task in crew.upkeep(shard)]
