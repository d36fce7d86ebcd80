"""Removes what remains of a consumer that an app no longer has: its rows in the ledger, and its places on brokers."""

from collections.abc import Sequence
from datetime import timedelta

from oncemq.contracts.broker_queries import PruningAdapter
from oncemq.engine.group_ownership import is_column
from oncemq.engine.plan import AppPlan
from oncemq.ledger import renames
from oncemq.ledger.generations import rotation
from oncemq.ledger.renames import Left

_CLOSE_WITHIN = timedelta(seconds=2)


def prune_left(plan: AppPlan, left: Left) -> list[str]:
    """Remove the remains, first from the brokers; returns a line for each action done or left to a person.

    Raises:
        BrokerError: a broker does not answer; a second call removes the rest.
    """
    lines: list[str] = []
    remote = [place for place in left.places if not is_column(place)]
    for broker in sorted({place.broker for place in remote}):
        places = [place for place in remote if place.broker == broker]
        removed = _remove(plan, broker, [place.name for place in places])
        lines += [
            f"removed {place.name} at {broker}"
            if place.name in removed
            else f"left {place.name} at {broker}: remove it there, if no other program uses it"
            for place in places
        ]
    _forget(plan, left)
    if left.gone:
        lines.append(f"removed {left.scope} from the ledger")
    return lines


def _remove(plan: AppPlan, broker: str, names: Sequence[str]) -> Sequence[str]:
    removed: list[str] = []
    for adapter in plan.adapters.values():
        if isinstance(adapter, PruningAdapter):
            try:
                adapter.prepare(())
                removed += adapter.remove_places(broker, [name for name in names if name not in removed])
            finally:
                adapter.close(grace=_CLOSE_WITHIN)
    return removed


def _forget(plan: AppPlan, left: Left) -> None:
    for engine in plan.engines:
        with engine.begin() as connection:
            renames.disown(connection, left.places)
            if left.gone:
                renames.remove(connection, left.scope)
        if left.gone and plan.generations:
            rotation.drop_all(engine, left.scope)
