"""Database checks for operations: they answer, with the ledger and the keys that they had before."""

from oncemq.engine.plan import AppPlan
from oncemq.ledger import schema
from oncemq.ledger.coordination import shards
from oncemq.ledger.database import probe
from oncemq.ledger.database.server_clock import LedgerClock


def prove(plan: AppPlan) -> None:
    """Check that the app's databases answer, each with the ledger and the keys that it had before.

    Raises:
        InfrastructureError: a database does not answer.
        LedgerError: a database refuses access, or is not the one from before.
    """
    for engine in plan.engines:
        probe.prove(engine)
        schema.ensure(engine)
        if isinstance(plan.clock, LedgerClock):
            plan.clock.measure(engine)
    shards.ensure(plan.engines, plan.name, plan.layout)
