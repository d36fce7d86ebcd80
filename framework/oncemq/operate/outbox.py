"""Decides about messages that wait in the outbox or for their time, in batches that are in the audit trail with their change."""

from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from oncemq.engine.plan import AppPlan
from oncemq.ledger.messages import delayed, outbox_refused
from oncemq.ledger.messages.outbox_refused import Chosen, Row
from oncemq.operate.auditing import Trail, by_scope, selection

_Find = Callable[[Connection, int], Sequence[Row]]
_Change = Callable[[Connection, Sequence[Row]], int]


def retry(plan: AppPlan, chosen: Chosen, trail: Trail) -> int:
    """Make refused messages due now; returns how many."""
    now = plan.clock.now()
    return _decide(
        plan,
        chosen,
        trail,
        lambda connection, after: outbox_refused.locked(connection, plan.name, chosen, now, after),
        lambda connection, rows: outbox_refused.retry(connection, rows, now),
    )


def drop(plan: AppPlan, chosen: Chosen, trail: Trail) -> tuple[int, int]:
    """Delete refused messages; returns how many, and how many stayed because a process is sending them."""
    now = plan.clock.now()
    dropped = _decide(
        plan,
        chosen,
        trail,
        lambda connection, after: outbox_refused.locked(connection, plan.name, chosen, now, after),
        outbox_refused.drop,
    )
    left = 0
    for engine in plan.engines:
        with engine.connect() as connection:
            left += outbox_refused.count(connection, plan.name, chosen)
    return dropped, left


def cancel(plan: AppPlan, chosen: Chosen, trail: Trail) -> int:
    """Delete messages that have not become due; returns how many."""
    return _decide(
        plan,
        chosen,
        trail,
        lambda connection, after: delayed.locked(connection, plan.name, chosen, after),
        delayed.drop,
    )


def _decide(plan: AppPlan, chosen: Chosen, trail: Trail, find: _Find, change: _Change) -> int:
    """Change the chosen rows of every database, a batch in a transaction; returns how many."""
    count = 0
    target = selection(topic=chosen.topic, id=chosen.ids)
    for engine in plan.engines:
        after = 0
        while True:
            with engine.begin() as connection:
                rows = find(connection, after)
                if not rows:
                    break
                count += change(connection, rows)
                for scope, keys in by_scope([(row.scope, row.key) for row in rows]).items():
                    trail.note(connection, scope, keys, target)
            after = rows[-1].number
    return count
