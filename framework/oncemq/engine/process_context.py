"""Objects that all consumers of a process share."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from oncemq.common.clock import Clock
from oncemq.common.sharding import Layout
from oncemq.engine.crash.suspects import SuspectBook
from oncemq.engine.crash.time_limits import Watchdog
from oncemq.engine.outbox.confirmed_publisher import Publishing
from oncemq.engine.outbox.relay import Relay
from oncemq.observe.observers import Observers
from oncemq.redis.client import RedisClient


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """Objects that all consumers of a process share.

    Args:
        engines: the app's databases: none, one, or every shard in order.
        layout: which shard a key belongs to; None without shards.
        redis: the app's Redis; None without one.
        clock: the source of time.
        observers: receive all events.
        watchdog: enforces time limits.
        state: the folder of flight recorders; None = none are kept.
        process: this process's name in the names of its recorders.
        book: crash suspects; None without recorders.
        alone: held while a crash suspect runs.
        leaving: the process must not wait for brokers any longer.
        publishing: publishes to the app's topics.
        relays: store and send messages published by transactional handlers, one for each database.
        point: called with the name of each kill point reached.
    """

    engines: tuple[Engine, ...]
    layout: Layout | None
    redis: RedisClient | None
    clock: Clock
    observers: Observers
    watchdog: Watchdog
    state: Path | None
    process: str
    book: SuspectBook | None
    alone: threading.Lock
    leaving: threading.Event
    publishing: Publishing
    relays: Sequence[Relay | None]
    point: Callable[[str], None]
