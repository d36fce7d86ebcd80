"""Checks that an app's brokers, database, Redis and ledger tables are available, without changing anything."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy.exc import SQLAlchemyError

from oncemq.config.build.broker_findings import examined, examined_topics
from oncemq.config.build.plan import LoadedApp
from oncemq.config.source.problems import Problems
from oncemq.contracts.adapter import Adapter
from oncemq.contracts.broker_queries import (
    ExaminingAdapter,
    PartlyExamining,
    PublishingExaminer,
    RedisStrategy,
)
from oncemq.engine.group_ownership import in_words, left_names, look, unseen_rows
from oncemq.engine.plan import AppPlan
from oncemq.errors import ConfigError, LedgerError, OnceMQError
from oncemq.ledger import schema
from oncemq.ledger.coordination import shards
from oncemq.ledger.database import probe, side_by_side
from oncemq.redis.probe import prove, startup_warnings
from oncemq.upkeep.generations import ensure_begun


@dataclass(slots=True)
class Proof:
    """Results of connecting to everything.

    Args:
        failures: unreachable or unexpected servers.
        problems: conflicts with the consumers, with their place in the file.
        risks: risky settings of databases and Redis, groups that another app may own, and remains of removed consumers.
        unknown: what could not be compared, and how it could be.
    """

    failures: list[OnceMQError] = field(default_factory=list)
    problems: Problems = field(default_factory=Problems)
    risks: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def connect_to_all(loaded: LoadedApp) -> Proof:
    """Connect to everything, and check the brokers' objects that each consumer needs."""
    problems = Problems(secrets=set(loaded.secrets))
    unknown: list[str] = []

    def examine(broker: str, adapter: Adapter) -> Iterable[OnceMQError]:
        if isinstance(adapter, ExaminingAdapter):
            yield from examined(loaded, broker, adapter, problems)
        if isinstance(adapter, PublishingExaminer):
            yield from examined_topics(loaded, broker, adapter, problems)
        if isinstance(adapter, PartlyExamining):
            unknown.extend(f"{text} (broker {broker})" for text in adapter.not_examined())

    failures = list(failed_connections(loaded.plan, examine))
    risks = [*_database_risks(loaded.plan), *redis_risks(loaded.plan), *_other_owners(loaded.plan)]
    for engine in loaded.plan.engines:
        try:
            risks += side_by_side.examine(engine, schema.VERSIONS)
        except LedgerError as error:
            failures.append(error)
        except SQLAlchemyError:
            # It does not answer, or has no ledger yet: that is reported already.
            continue
    return Proof(failures, problems, risks, unknown)


def failed_connections(
    plan: AppPlan, examine: Callable[[str, Adapter], Iterable[OnceMQError]] = lambda *_: ()
) -> Iterator[OnceMQError]:
    """Connect to everything and yield the failures; continues after a failure, so that all are reported together.

    Args:
        plan: the app.
        examine: called with each broker's name and connected adapter; yields further errors.
    """
    for name, adapter in plan.adapters.items():
        try:
            # Without subscriptions nothing is declared: only address and credentials are checked.
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


def _database_risks(plan: AppPlan) -> list[str]:
    """Return risky database settings; nothing if one does not answer, which is reported as a failure."""
    try:
        return [warning for engine in plan.engines for warning in probe.startup_warnings(engine)]
    except SQLAlchemyError:
        return []


def redis_risks(plan: AppPlan) -> list[str]:
    """Return risky Redis settings; nothing if Redis does not answer, which is reported as a failure."""
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
    """Return other owners of the app's groups, and remains of removed consumers; nothing if the ledger is away."""
    try:
        return [*look(plan).warnings, *map(in_words, left_names(plan))]
    except SQLAlchemyError:
        return ()


def _prove_database(plan: AppPlan) -> None:
    for engine in plan.engines:
        probe.prove(engine)
        schema.ensure(engine, plan.tables())
        schema.insist_on_rights(engine, plan.tables())
    shards.ensure(plan.engines, plan.name, plan.layout)
    ensure_begun(plan.engines, plan.generations)
    if conflicts := [*look(plan).conflicts, *unseen_rows(plan)]:
        raise ConfigError(conflicts)


def _failures_of_redis(plan: AppPlan) -> Iterator[OnceMQError]:
    if plan.redis is None:
        return
    # Consumers of the same kind lack the same permissions.
    said: set[str] = set()
    try:
        prove(plan.redis)
        for consumer in plan.consumers:
            strategies = [each for each in consumer.strategies_on(0) if isinstance(each, RedisStrategy)]
            for using in (*strategies, *consumer.handler.outside):
                for error in using.missing_in_redis():
                    if str(error) not in said:
                        said.add(str(error))
                        yield error
    except OnceMQError as error:
        yield error
    finally:
        plan.redis.close()
