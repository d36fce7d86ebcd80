"""Facts about a consumer that `check` receives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from oncemq.common.problems import Problem, Severity

__all__ = ["ConsumerFacts", "Effects", "Problem", "Severity", "UnitKind"]


class Effects(StrEnum):
    """Where a handler's effects live, which decides the kind of unit."""

    DATABASE = "database"
    EXTERNAL = "external"


class UnitKind(StrEnum):
    """Transactional units are all or nothing; in direct units every item is independent."""

    TRANSACTIONAL = "transactional"
    DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class ConsumerFacts:
    """Facts about a consumer before it starts.

    Args:
        app: the app's name.
        name: the consumer's name.
        topic: the topic's name.
        group: the consumer group.
        effects: where the handler's effects live.
        broker: the broker's name in the app.
        strategies: the chain's registry names, in order.
        identity: the declared identity expressions; empty means the default.
        has_version: the topic declares a version.
        keep: how long dedup records are kept.
        retry_horizon: the longest time from the first delivery to the last retry.
        attempts: attempts in all before a message is dead-lettered.
        is_async: the handler is a coroutine function.
        dialect: the database's SQLAlchemy dialect name; empty without a database.
        workers: threads or tasks.
        in_flight: how many deliveries may be unsettled at once.
        unit_time: how long a unit should last.
        soft_limit: the time after which a unit is aborted; None = never.
        hard_limit: the time after which the process is ended; None = never.
        hold_key: after a Retry, later messages of the key wait in the ledger until it is done.
        isolate: each call of the handler has a transaction of its own.
        options: the topic's broker options as declared.
        longest_pause: the longest single pause between two attempts.
        publishes: the handler requests a `Publisher`.
        routes_by: the expression of the value that chooses the handler; empty without routes.
        routes: the values that have a handler.
        instance: the name of this instance, which receives every message; empty where the group's members share them.
    """

    app: str
    name: str
    topic: str
    group: str
    effects: Effects
    broker: str
    strategies: tuple[str, ...]
    identity: tuple[str, ...]
    has_version: bool
    keep: timedelta
    retry_horizon: timedelta
    attempts: int
    is_async: bool
    dialect: str
    workers: int
    in_flight: int
    unit_time: timedelta
    soft_limit: timedelta | None
    hard_limit: timedelta | None
    hold_key: bool = False
    isolate: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    longest_pause: timedelta = timedelta(0)
    publishes: bool = False
    routes_by: str = ""
    routes: tuple[str, ...] = ()
    instance: str = ""
