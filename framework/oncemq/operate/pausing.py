"""Pauses and resumes consumers in every process of an app, through its ledger."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Engine

from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.errors import ConfigError
from oncemq.ledger.coordination import pauses
from oncemq.ledger.coordination.pauses import OPERATOR, Pause
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.operate.auditing import Operator, Trail


def pause(plan: AppPlan, consumers: Sequence[ConsumerPlan], operator: Operator) -> None:
    """Pause consumers until they are resumed; their processes notice it within two seconds.

    Raises:
        ConfigError: the app has no database.
    """
    engine, now, trail = _ledger(plan), plan.clock.now(), Trail(plan, operator, "pause")
    with engine.begin() as connection:
        for consumer in consumers:
            pauses.begin(connection, Pause(consumer.scope, OPERATOR, operator.who, operator.why, now))
            trail.note(connection, consumer.scope, {}, "")


def resume(plan: AppPlan, consumers: Sequence[ConsumerPlan], operator: Operator) -> list[str]:
    """End an operator's pause of consumers; returns the names of those that had one. A breaker's pause is not ended.

    Raises:
        ConfigError: the app has no database.
    """
    engine, trail = _ledger(plan), Trail(plan, operator, "resume")
    with engine.begin() as connection:
        ended = [each for each in consumers if pauses.end(connection, each.scope, OPERATOR)]
        for each in ended:
            trail.note(connection, each.scope, {}, "")
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
