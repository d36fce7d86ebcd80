"""Pauses and resumes consumers in every process of an app, through its ledger."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Engine

from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.errors import ConfigError
from oncemq.ledger.coordination import pauses
from oncemq.ledger.coordination.pauses import OPERATOR, Pause
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.records import audit
from oncemq.ledger.records.audit import Change


def pause(plan: AppPlan, consumers: Sequence[ConsumerPlan], who: str, why: str) -> None:
    """Pause consumers until they are resumed; their processes notice it within two seconds.

    Raises:
        ConfigError: the app has no database.
    """
    engine, now = _ledger(plan), plan.clock.now()
    with engine.begin() as connection:
        for consumer in consumers:
            pauses.begin(connection, Pause(consumer.scope, OPERATOR, who, why, now))
        audit.add(connection, [_change(plan, each, "pause", who, why) for each in consumers])


def resume(plan: AppPlan, consumers: Sequence[ConsumerPlan], who: str, why: str) -> list[str]:
    """End an operator's pause of consumers; returns the names of those that had one. A breaker's pause is not ended.

    Raises:
        ConfigError: the app has no database.
    """
    with _ledger(plan).begin() as connection:
        ended = [each for each in consumers if pauses.end(connection, each.scope, OPERATOR)]
        audit.add(connection, [_change(plan, each, "resume", who, why) for each in ended])
    return [consumer.name for consumer in ended]


def in_force(plan: AppPlan) -> Mapping[str, tuple[Pause, ...]]:
    """Return the pauses of the app's consumers, by consumer; empty without a database."""
    if plan.engine is None:
        return {}
    names = {consumer.scope: consumer.name for consumer in plan.consumers}
    with plan.engine.connect().execution_options(**{READ_ONLY: True}) as connection:
        return {names[scope]: found for scope, found in pauses.of(connection, names).items()}


def _ledger(plan: AppPlan) -> Engine:
    if plan.engine is None:
        raise ConfigError(["the app has no database, through which all of its processes could be paused"])
    return plan.engine


def _change(plan: AppPlan, consumer: ConsumerPlan, action: str, who: str, why: str) -> Change:
    return Change(plan.name, consumer.scope, action, who, plan.clock.now(), why)
