"""Checks that an app's brokers, database, Redis and ledger tables are there, without changing anything."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy.exc import SQLAlchemyError

from oncemq.config.build.broker_findings import examined
from oncemq.config.build.plan import LoadedApp
from oncemq.config.source.problems import Problems
from oncemq.contracts.adapter import Adapter
from oncemq.contracts.broker_queries import ExaminingAdapter, RedisStrategy
from oncemq.engine.application import tables_of
from oncemq.engine.group_ownership import in_words, left_names, look
from oncemq.engine.plan import AppPlan
from oncemq.errors import ConfigError, OnceMQError
from oncemq.ledger import schema
from oncemq.ledger.coordination import shards
from oncemq.ledger.database import probe
from oncemq.redis.probe import prove, startup_warnings


@dataclass(slots=True)
class Proof:
    """What was found by connecting to everything.

    Args:
        failures: what could not be reached, or is not what it should be.
        problems: what does not fit the consumers, with its place in the file.
        risks: what is risky about Redis' settings, and groups that another app may own, and what is left of consumers that are gone.
    """

    failures: list[OnceMQError] = field(default_factory=list)
    problems: Problems = field(default_factory=Problems)
    risks: list[str] = field(default_factory=list)


def connect_to_all(loaded: LoadedApp) -> Proof:
    """Connect to everything, and look what the brokers have of what each consumer needs."""
    problems = Problems(secrets=set(loaded.secrets))

    def examine(broker: str, adapter: Adapter) -> Iterable[OnceMQError]:
        if isinstance(adapter, ExaminingAdapter):
            return examined(loaded, broker, adapter, problems)
        return ()

    failures = list(failed_connections(loaded.plan, examine))
    return Proof(failures, problems, [*redis_risks(loaded.plan), *_other_owners(loaded.plan)])


def failed_connections(
    plan: AppPlan, examine: Callable[[str, Adapter], Iterable[OnceMQError]] = lambda *_: ()
) -> Iterator[OnceMQError]:
    """Connect to everything and yield what failed; goes on after a failure, so that a person mends all in one go.

    Args:
        plan: the app.
        examine: told each broker's name and its connected adapter; yields what else is wrong with it.
    """
    for name, adapter in plan.adapters.items():
        try:
            # Without subscriptions nothing is declared: only address and credentials are proved.
            adapter.prepare(())
            yield from examine(name, adapter)
        except OnceMQError as error:
            yield error
        finally:
            adapter.close(grace=timedelta(seconds=1))
    try:
        _prove_database(plan)
    except OnceMQError as error:
        yield error
    yield from _failures_of_redis(plan)


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


def _other_owners(plan: AppPlan) -> Sequence[str]:
    """Return who else may own the app's groups, and what is left of consumers that it has no more; nothing where the ledger does not answer, which is a failure already."""
    try:
        return [*look(plan).warnings, *map(in_words, left_names(plan))]
    except SQLAlchemyError:
        return ()


def _prove_database(plan: AppPlan) -> None:
    for engine in plan.engines:
        probe.prove(engine)
        schema.ensure(engine, tables_of(plan))
    shards.ensure(plan.engines, plan.name, plan.layout)
    if conflicts := look(plan).conflicts:
        raise ConfigError(conflicts)


def _failures_of_redis(plan: AppPlan) -> Iterator[OnceMQError]:
    if plan.redis is None:
        return
    # Consumers of one kind lack the same.
    said: set[str] = set()
    try:
        prove(plan.redis)
        for strategy in (each for consumer in plan.consumers for each in consumer.strategies):
            for error in strategy.missing_in_redis() if isinstance(strategy, RedisStrategy) else ():
                if str(error) not in said:
                    said.add(str(error))
                    yield error
    except OnceMQError as error:
        yield error
    finally:
        plan.redis.close()
