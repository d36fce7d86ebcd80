"""Whether an app's brokers, database, Redis and ledger tables are there, asked without changing anything."""

from collections.abc import Iterable
from datetime import timedelta

from oncemq.adapter import Adapter
from oncemq.errors import OnceMQError
from oncemq.ledger import probe, schema, shards
from oncemq.redis.probe import prove, startup_warnings
from oncemq.run.application import tables_of
from oncemq.run.plan import AppPlan


def failed_connections(plan: AppPlan) -> Iterable[OnceMQError]:
    """Connect to everything and yield what failed; goes on after a failure, so that a person mends all in one go."""
    for adapter in plan.adapters.values():
        try:
            _prove_broker(adapter)
        except OnceMQError as error:
            yield error
    for proof in (_prove_database, _prove_redis):
        try:
            proof(plan)
        except OnceMQError as error:
            yield error


def redis_risks(plan: AppPlan) -> list[str]:
    """Return what is risky about Redis' settings; nothing where it does not answer, which is a failure already."""
    if plan.redis is None:
        return []
    try:
        prove(plan.redis)
        return startup_warnings(plan.redis)
    except OnceMQError:
        return []
    finally:
        plan.redis.close()


def _prove_broker(adapter: Adapter) -> None:
    """Without subscriptions nothing is declared: only address and credentials are proved."""
    try:
        adapter.prepare(())
    finally:
        adapter.close(grace=timedelta(seconds=1))


def _prove_database(plan: AppPlan) -> None:
    for engine in plan.engines:
        probe.prove(engine)
        schema.ensure(engine, tables_of(plan))
    shards.ensure(plan.engines, plan.name, plan.layout)


def _prove_redis(plan: AppPlan) -> None:
    if plan.redis is not None:
        try:
            prove(plan.redis)
        finally:
            plan.redis.close()
