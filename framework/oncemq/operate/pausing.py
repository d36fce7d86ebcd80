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
        for scope in dict.fromkeys(consumer.scope for consumer in consumers):
            pauses.begin(connection, Pause(scope, OPERATOR, operator.who, operator.why, now))
            trail.note(connection, scope, {}, "")


def resume(plan: AppPlan, consumers: Sequence[ConsumerPlan], operator: Operator) -> list[str]:
    """End an operator's pause of consumers; returns the names of those that had one. A breaker's pause is not ended.

    Raises:
        ConfigError: the app has no database.
    """
    engine, trail = _ledger(plan), Trail(plan, operator, "resume")
    with engine.begin() as connection:
        scopes = dict.fromkeys(consumer.scope for consumer in consumers)
        ended = [scope for scope in scopes if pauses.end(connection, scope, OPERATOR)]
        for scope in ended:
            trail.note(connection, scope, {}, "")
    return [consumer.name for consumer in consumers if consumer.scope in ended]


def in_force(plan: AppPlan) -> Mapping[str, tuple[Pause, ...]]:
    """Return the pauses of the app's consumers, by consumer; empty without a database."""
    if plan.engine is None:
        return {}
    scopes = plan.scopes
    with plan.engine.connect().execution_options(**{READ_ONLY: True}) as connection:
        found = pauses.of(connection, set(scopes.values()))
    return {name: found[scope] for name, scope in scopes.items() if scope in found}


def _ledger(plan: AppPlan) -> Engine:
    if plan.engine is None:
        raise ConfigError(["the app has no database, through which all of its processes could be paused"])
    return plan.engine
