"""Verifies messages whose outcome is unknown, or notes what an operator has found out about them."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from sqlalchemy import Engine

from oncemq.contracts.verification import Answer, Done, NotDone
from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.operate.auditing import Trail

KNOWN: Final[dict[str, Answer]] = {"done": Done(), "not-done": NotDone()}
"""What an operator may have found out."""


def reconciled(
    plan: AppPlan,
    consumers: Sequence[ConsumerPlan],
    trail: Trail,
    *,
    identity: str | None = None,
    answer: Answer | None = None,
) -> list[dict[str, Any]]:
    """Settle unknown outcomes; returns a row for each: consumer, key, identity, answer, reason.

    Args:
        plan: the app, whose databases answer.
        consumers: only these.
        trail: gets each change.
        identity: only the message with this identity.
        answer: what is known already; None = `verify` is asked.
    """
    return [
        row
        for shard, engine in enumerate(plan.engines)
        for target in consumers
        for row in _settled(target, shard, engine, identity, answer, trail)
    ]


def _settled(
    consumer: ConsumerPlan,
    shard: int,
    engine: Engine,
    identity: str | None,
    answer: Answer | None,
    trail: Trail,
) -> Iterator[dict[str, Any]]:
    for strategy in consumer.strategies_on(shard):
        for found in strategy.reconcile(engine, identity=identity, answer=answer):
            with engine.begin() as connection:
                target = (
                    f"identity {found.identity}: {found.answer}{' by hand' if answer is not None else ''}"
                )
                trail.note(connection, consumer.scope, {found.key: 1}, target)
            shown = {**asdict(found), "reason": consumer.redact(found.reason)}
            yield {"consumer": consumer.name, **shown}
