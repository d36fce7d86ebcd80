"""Plan of an app: the resolved configuration that the engine runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Engine, MetaData, Table

from oncemq.common.clock import Clock
from oncemq.common.redaction import Redactor
from oncemq.common.sharding import Layout
from oncemq.contracts.adapter import Adapter, Subscription
from oncemq.contracts.checks import Effects
from oncemq.contracts.strategy import Strategy
from oncemq.engine.breakers.recorder import BreakerRecorder
from oncemq.engine.breakers.rule import BreakerRule
from oncemq.engine.rates.rule import BatchRule, ConcurrencyRule, RateRule
from oncemq.engine.recording.recorder import TrafficRecorder
from oncemq.engine.supervision.recycling import RecycleRule
from oncemq.handler.binding import BoundHandler
from oncemq.message.claims.claim_check import ClaimCheck
from oncemq.message.envelope import Delivery
from oncemq.message.outgoing import OutgoingTopic
from oncemq.message.reader import Reader
from oncemq.message.signed_history import HistoryKeys
from oncemq.observe.endpoint import Address
from oncemq.observe.events import Observer
from oncemq.redis.client import RedisClient
from oncemq.retry.backoff import RetryPolicy

if TYPE_CHECKING:
    from oncemq.observe.otel.tracing import Tracing


@dataclass(frozen=True, slots=True)
class Part:
    """A consumer's own parts on one shard of a sharded database.

    Args:
        strategies: the chain, in order.
        handler: the user's function, its arguments filled by these strategies.
    """

    strategies: tuple[Strategy, ...]
    handler: BoundHandler


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """What differs for the messages of a route from the consumer's others.

    Args:
        value: the value in the message, as text.
        retry: attempts and pauses.
        chain: the number of its chain of strategies; 0 = the consumer's own, others are in `more_chains`, from 1.
    """

    value: str
    retry: RetryPolicy
    chain: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """One consumer, ready to run.

    Args:
        name: the consumer's name in the app.
        scope: `app.consumer`, with the first name that the consumer had; the scope of its ledger rows.
        broker: the broker's name in the app.
        subscription: its subscription on the broker.
        reader: message → envelope and payload.
        handler: the user's function with its arguments resolved.
        effects: where the handler's effects live.
        strategies: the chain, in order.
        retry: attempts and pauses.
        workers: threads, or tasks for an async handler.
        unit_time: how long a unit should last.
        isolate: each handler call has its own transaction, on a connection that is reset afterwards.
        batch_limit: the most messages in one unit.
        soft_limit: the time after which a unit is aborted; None = never.
        hard_limit: the time after which the process is ended; None = never.
        hold_key: after a Retry, later messages of the key wait in the ledger until it is done.
        hold_dead: after a dead letter, later messages of the key wait in the ledger until a person decides about it: at most so
            many of a key; None = they do not.
        redact: masks the app's secrets in every text that leaves the process.
        keep: how long records of applied messages are kept; None where there are none.
        history_keys: sign what messages carry of their tries; None = the group's own places are trusted.
        other_scopes: scopes of its former names, whose rows are transferred to it.
        on_dead: the user's function for messages that failed for good; None without one.
        breakers: when it warns, slows down or pauses by itself.
        rate: how many messages a second it takes; None = as many as there are.
        concurrency: how many messages of a value a process works on at once; None = as many as there are.
        batch: when messages are enough for a batch, and which of them share one; None = whatever there is.
        generations: how long a generation of its records is open; None where they are in `oncemq_processed`.
        claims: where its topic's large bodies lie; None = in the messages.
        more_parts: strategies and handler on every shard but the first, if there are several.
        routes: what differs for some messages, by `Delivery.route`, from 1; its reader knows which messages.
        more_chains: the other chains of routes, each with its parts on all shards.
        declared: its name in the app's file; another than `name`, `count/orders`, where that consumer has several topics: there
            is a plan for each, and all share scope, strategies and handler.
        place: which of those topics it reads, from 0.
    """

    name: str
    scope: str
    broker: str
    subscription: Subscription
    reader: Reader
    handler: BoundHandler
    effects: Effects
    strategies: tuple[Strategy, ...]
    retry: RetryPolicy
    workers: int = 1
    unit_time: timedelta = timedelta(milliseconds=50)
    isolate: bool = False
    batch_limit: int = 500
    soft_limit: timedelta | None = None
    hard_limit: timedelta | None = None
    hold_key: bool = False
    hold_dead: int | None = None
    redact: Redactor = field(default_factory=Redactor)
    keep: timedelta | None = None
    history_keys: HistoryKeys | None = None
    other_scopes: tuple[str, ...] = ()
    more_parts: tuple[Part, ...] = ()
    on_dead: BoundHandler | None = None
    breakers: tuple[BreakerRule, ...] = ()
    rate: RateRule | None = None
    concurrency: ConcurrencyRule | None = None
    batch: BatchRule | None = None
    generations: timedelta | None = None
    claims: ClaimCheck | None = None
    routes: tuple[RoutePlan, ...] = ()
    more_chains: tuple[tuple[Part, ...], ...] = ()
    declared: str = ""
    place: int = 0

    @property
    def fans_in(self) -> bool:
        """Return whether other plans of its consumer read other topics."""
        return self.called != self.name

    @property
    def called(self) -> str:
        """Return its name in the app's file, which all its topics share."""
        return self.declared or self.name

    @property
    def only_topic(self) -> str | None:
        """Return the topic of its messages in the ledger, where those of other topics have the same scope; else None."""
        return self.subscription.topic if self.fans_in else None

    @property
    def parts(self) -> tuple[Part, ...]:
        """Strategies and handler on each shard; one part where the database is not sharded."""
        return (Part(self.strategies, self.handler), *self.more_parts)

    @property
    def chains(self) -> tuple[tuple[Part, ...], ...]:
        """The parts on each shard, for each chain of strategies; the consumer's own is the first."""
        return (self.parts, *self.more_chains)

    @property
    def chain_of_route(self) -> tuple[int, ...]:
        """The number of the chain by `Delivery.route`; empty where all messages have the same."""
        return (0, *(route.chain for route in self.routes)) if self.more_chains else ()

    def strategies_on(self, shard: int) -> tuple[Strategy, ...]:
        """Return the strategies of all its chains on one shard."""
        found = (strategy for parts in self.chains for strategy in parts[shard].strategies)
        # Several chains may share one.
        return tuple(dict.fromkeys(found))

    def retry_of(self, delivery: Delivery) -> RetryPolicy:
        """Return attempts and pauses of a message."""
        return self.routes[delivery.route - 1].retry if delivery.route else self.retry


@dataclass(frozen=True, slots=True)
class AppPlan:
    """A whole app, ready to run in this process.

    Args:
        name: the app's name.
        adapters: by the broker's name; built, not yet open.
        engine: the app's database, from `oncemq.ledger.database.engine.make_engine`; None without one. Of a sharded one
            the first shard, which also stores what has no key: workers, crash suspects, dead letters.
        consumers: by declaration order.
        clock: the source of time.
        topics: the topics that handlers may publish to, by name.
        keep: how long dedup records are kept, by ledger scope.
        state: folder for flight recorders; None = none are kept.
        grace: how long a stop may take in all.
        http: where metrics and health are shown; None = nowhere.
        warnings: warnings that are logged at every start.
        redis: the app's Redis, opened when first used; None without one.
        more_engines: every shard but the first, in order.
        layout: which shard a key belongs to; None where the database is not sharded.
        outbox_window: how long published messages belong to their process; when it dies, others wait that long.
        tracing: makes spans; None without.
        breakers: counts for the consumers' breakers; None without.
        recorder: notes what arrives while an operator records a consumer.
        recycle: when a supervisor replaces a worker process; None = never.
        claims: where large bodies lie, of all topics that have a store.
    """

    name: str
    adapters: Mapping[str, Adapter]
    engine: Engine | None
    consumers: tuple[ConsumerPlan, ...]
    clock: Clock
    topics: Mapping[str, OutgoingTopic] = field(default_factory=dict)
    keep: Mapping[str, timedelta] = field(default_factory=dict)
    state: Path | None = None
    grace: timedelta = timedelta(seconds=30)
    http: Address | None = None
    warnings: tuple[str, ...] = ()
    redis: RedisClient | None = None
    more_engines: tuple[Engine, ...] = ()
    layout: Layout | None = None
    outbox_window: timedelta = timedelta(seconds=20)
    tracing: "Tracing | None" = None
    breakers: BreakerRecorder | None = None
    recorder: TrafficRecorder = field(default_factory=TrafficRecorder)
    recycle: RecycleRule | None = None
    claims: tuple[ClaimCheck, ...] = ()

    @property
    def observers(self) -> tuple[Observer, ...]:
        """The observers that the app declares, beside logs and metrics."""
        return tuple(each for each in (self.tracing, self.breakers, self.recorder) if each is not None)

    @property
    def scopes(self) -> Mapping[str, str]:
        """The ledger scopes by the consumers' names."""
        return {consumer.name: consumer.scope for consumer in self.consumers}

    def record(self, asked: Callable[[], bool] = lambda: True) -> None:
        """Follow the recordings that operators ask for, and bring to the ledger what was noted for them."""
        readers = {each.scope: (each.name, each.reader.decode) for each in self.consumers if not each.fans_in}
        self.recorder.look(self.engine, self.clock, readers, asked)

    def observed(self, point: Callable[[str], None]) -> Callable[[str], None]:
        """Return a function that reports the points of a unit to the app's tracing, too."""
        tracing = self.tracing
        if tracing is None:
            return point

        def both(name: str) -> None:
            tracing.point(name)
            point(name)

        return both

    @property
    def generations(self) -> Mapping[str, timedelta]:
        """How long a generation is open, by the ledger scope of the consumers that have generations."""
        return {each.scope: each.generations for each in self.consumers if each.generations is not None}

    @property
    def engines(self) -> tuple[Engine, ...]:
        """The app's databases: none, one, or every shard in order."""
        return () if self.engine is None else (self.engine, *self.more_engines)

    @property
    def redact(self) -> Redactor:
        """The masking of the app's secrets."""
        return next((consumer.redact for consumer in self.consumers), Redactor())

    def tables(self) -> list[Table]:
        """Return the ledger tables that the app's strategies need."""
        metadata = MetaData()
        strategies = [strategy for consumer in self.consumers for strategy in consumer.strategies_on(0)]
        return [table for strategy in strategies for table in strategy.tables(metadata)]

    @property
    def publishes(self) -> bool:
        """Whether any handler requests a Publisher."""
        return any(
            consumer.handler.publishes or any(strategy.publishes for strategy in consumer.strategies_on(0))
            for consumer in self.consumers
        )
