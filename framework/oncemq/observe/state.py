"""Snapshot of an app: its phase and one row for each expected consumer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from oncemq.ledger.coordination.pauses import Pause


class Phase(StrEnum):
    """Phase of an app's life cycle."""

    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPED = "stopped"


class PauseReason(StrEnum):
    """Reason why a consumer runs no units."""

    DATABASE = "database"
    REDIS = "redis"
    BROKER = "broker"
    STRATEGY_BUG = "strategy-bug"
    SETUP = "setup"
    ASKED = "asked"
    BREAKER = "breaker"
    STORE = "claim-store"


@dataclass(frozen=True, slots=True)
class BreakerState:
    """Snapshot of one breaker of a consumer in this process.

    Args:
        kind: `duplicates`, `failures` or `hot_key`.
        phase: `closed`, `open` or `half-open`.
        share: of the messages in its window, from 0 to 1.
    """

    kind: str
    phase: str
    share: float


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """Snapshot of one consumer.

    Args:
        consumer: the consumer's name.
        subscribed: the broker is sending it messages, or would if there were any.
        paused: why it runs no units; None while it does.
        waiting: messages in this process that could run now or are running; not those asleep until later.
        in_flight: deliveries that are not settled yet.
        last_progress: monotonic seconds when it last settled something, or when it had nothing to do.
        depth: messages that wait at the broker; None if unknown.
        parked: messages that wait in the ledger for their turn; None if none can be parked.
        parked_seconds: how long the oldest of them has waited; 0.0 while none does, None if none can be parked.
        held_keys: keys that are held by a dead letter; None if dead letters hold none.
        dead_letters: that are there, at the broker and in the ledger; None if the broker does not count them.
        unknown_claims: external effects of which it is unknown whether they happened; None without claims in the ledger.
        detail: the problem, as text.
        exclusive: it runs one unit at a time because units deadlocked with each other.
        figures: measurements of its strategies, by name.
        pauses: who paused it in all processes, when and why.
        breakers: its breakers in this process.
    """

    consumer: str
    subscribed: bool
    paused: PauseReason | None = None
    waiting: int = 0
    in_flight: int = 0
    last_progress: float = 0.0
    depth: int | None = None
    parked: int | None = None
    parked_seconds: float | None = None
    unknown_claims: int | None = None
    detail: str = ""
    exclusive: bool = False
    figures: Mapping[str, float] = field(default_factory=dict)
    pauses: tuple[Pause, ...] = ()
    breakers: tuple[BreakerState, ...] = ()
    dead_letters: int | None = None
    held_keys: int | None = None

    @property
    def live(self) -> bool:
        """Whether it is subscribed and runs units."""
        return self.subscribed and self.paused is None


@dataclass(frozen=True, slots=True)
class OutboxState:
    """Messages of the whole app that handlers published and brokers have not confirmed.

    Args:
        messages: their number.
        oldest_seconds: how long the oldest has waited; 0.0 while nothing waits.
        refused: how many of them a broker has refused at least once.
        dead: how many more are kept for an operator.
        delayed: how many more were published for later.
        late_seconds: how long the first of these has been due; 0.0 while none is.
    """

    messages: int
    oldest_seconds: float
    refused: int
    dead: int = 0
    delayed: int = 0
    late_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class AppState:
    """Snapshot of a whole app in this process.

    Args:
        phase: of its life cycle.
        consumers: every consumer that is expected to run, including those that do not.
        outbox: unsent messages; None if unknown.
        clock_skew: seconds by which this machine's clock is ahead of the database's; None without one.
        database_silent: seconds since a database has last answered; None while it does, and without one.
        ledger_bytes: size of the ledger's tables with their indexes, in all databases of the app; None if unknown.
    """

    phase: Phase
    consumers: tuple[ConsumerState, ...] = ()
    outbox: OutboxState | None = None
    clock_skew: float | None = None
    database_silent: float | None = None
    ledger_bytes: int | None = None


StateSource = Callable[[], AppState]
"""Called for every scrape and health check, from its own threads: it must be cheap and never block."""
