"""Specification of the chain under test, for the strategy suite."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.types import TypeEngine


@dataclass(frozen=True, slots=True)
class ChainSpec:
    """A chain as written in the configuration.

    Args:
        strategies: registry name and options, in order.
        late_is_stale: a message that comes after a newer one of its key does not run.
        early_waits: a message that comes before its predecessor does not run yet.
        compares_content: the same identity with another `amount` is a conflict.
        entity: the chain works on a user table, `$TABLE` in its options.
        key_type: of that table's key column; None = a text type that neither folds nor pads.
        parks: a message that comes early is parked, and follows when its turn has come.
        waits: a copy does not run while the first one's transaction is open; otherwise it may, and loses then.
        defers: a copy is deferred without waiting while the first one's unit is running.
        direct: effects are outside, so units are direct; each handler commits its effect by itself. `$VERIFY` in the
            options stands for a function that checks whether a message's effect exists.
        doubts: the effect of a handler that raised is in doubt, which leaves a record until it is resolved.
        redis: the URL of the Redis that the strategies use; empty without one.
    """

    strategies: Sequence[tuple[str, Mapping[str, Any]]]
    late_is_stale: bool = False
    early_waits: bool = False
    compares_content: bool = False
    entity: bool = False
    key_type: TypeEngine[Any] | None = None
    parks: bool = False
    waits: bool = True
    defers: bool = False
    direct: bool = False
    doubts: bool = False
    redis: str = ""
