"""Databases for what consumes nothing: they answer, and hold the ledger and the keys that they had before."""

from oncemq.engine.plan import AppPlan
from oncemq.ledger import schema
from oncemq.ledger.coordination import shards
from oncemq.ledger.database import probe
from oncemq.ledger.database.server_clock import LedgerClock


def prove(plan: AppPlan) -> None:
    """Make sure that the app's databases answer, each with the ledger and the keys that it had before.

    Raises:
        InfrastructureError: one does not answer.
        LedgerError: one refuses us, or is not what it was.
    """
    for engine in plan.engines:
        probe.prove(engine)
        schema.ensure(engine)
        if isinstance(plan.clock, LedgerClock):
            plan.clock.measure(engine)
    shards.ensure(plan.engines, plan.name, plan.layout)
