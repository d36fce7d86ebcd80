"""Settings of one consumer, merged from its topic and the defaults, and where each value was written."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from oncemq.config.model.accepts_section import AcceptsOption
from oncemq.config.model.app_model import BROADCAST, AppModel, Consumer
from oncemq.config.model.fields import BETWEEN, group_of
from oncemq.config.model.routes_section import RoutesOption
from oncemq.config.model.schemas_section import BodyVersionOption
from oncemq.config.model.section import Section
from oncemq.config.model.shared_sections import Concurrency, OnDead, Retry
from oncemq.config.model.shared_sections import RetryRule as DeclaredRule
from oncemq.config.model.strategy_list import StrategyChoice
from oncemq.config.source.tree import Path
from oncemq.contracts.checks import Effects, UnitKind
from oncemq.engine.breakers.rule import BreakerAction, BreakerKind, BreakerRule
from oncemq.engine.rates.rule import BatchRule, ConcurrencyRule, RateRule
from oncemq.ledger.coordination.broadcast import AT
from oncemq.retry.backoff import RetryPolicy

DEFAULT_KEEP = timedelta(days=7)
DEFAULT_IN_FLIGHT = 1000
DEFAULT_HELD = 1000
_HELD_FOR = 10.0
"""Seconds for which a consumer with a rate holds messages."""
DEFAULT_UNIT_TIME = timedelta(milliseconds=50)
DEFAULT_BATCH_LIMIT = 500
_BY_ROUTE = ("strategies", "retry", "retry_rules", "key", "version", "identity", "schema")
"""What a route may have of its own, beside its handler."""
EXTERNAL_WORKERS = 32
"""A handler of external effects mostly waits; a handler of database effects only competes for the GIL."""


@dataclass(frozen=True, slots=True)
class RetryRule:
    """A policy for the exceptions of a class.

    Args:
        error: the class, or its name.
        policy: attempts and pauses.
        path: where it was declared.
    """

    error: Any
    policy: RetryPolicy
    path: Path


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """A consumer as it will run.

    Args:
        name: the consumer's name; of several topics with the topic behind it, `count/orders`.
        topic: the topic's name.
        broker: the broker's name.
        group: the consumer group.
        handler: `module:name`, or the function itself; None with `routes`.
        accepts: the versions of payloads that it takes; None = bodies come as they are.
        body_version: where its topic's messages have their versions; None = the topic does not say it.
        routes: handlers by a value in the message; None with `handler`.
        effects: where the handler's effects live.
        transactional: a unit is one transaction.
        key: the key's expression; empty if none was declared.
        version: the version's expression.
        identity: the identity's expressions; empty means the default.
        format: how bodies are encoded.
        schema: a type that bodies must match, as declared.
        strategies: the chain as declared.
        retry: attempts and pauses; without the rules by exception until these are imported.
        retry_rules: other policies by exception, as declared.
        hold_key: after a Retry the key's later messages wait in the ledger until it is done; None = as the
            strategies require.
        expires_after: how long a message may wait since it was published; None = as long as it likes.
        deadline: the expression of a message's own deadline; None = it has none.
        bury_expired: an expired message becomes a dead letter, also if it was never tried.
        delay_by: the expression of the delay that a producer asks for; empty = producers have no say.
        delay_limit: the longest one.
        on_dead: the function for messages that have finally failed, or its name; None = there is none.
        hold_dead: after a dead letter so many later messages of its key may wait in the ledger; None = they do not wait.
        keep: how long dedup records are kept.
        workers: threads or tasks.
        in_flight: maximum of unsettled deliveries.
        unit_time: target duration of a unit.
        reply: the handler's result is the answer of a message that requests one.
        isolate: each call of the handler has a transaction of its own.
        batch_limit: maximum of messages in one unit.
        batch: when messages are enough for a batch, and which of them share one; None = whatever there is.
        soft_limit: after this time a unit is aborted; None = never.
        hard_limit: after this time the process is ended; None = never.
        publishes: the topics that its handler may publish to; None = all.
        formerly: its former names, the first one first.
        middlewares: as declared for this consumer, without those of the app.
        breakers: when it warns, slows down or pauses by itself.
        rate: how many messages a second it takes; None = as many as there are.
        concurrency: how many messages of a value a process works on at once; None = as many as there are.
        instance: the name of this instance, which receives every message; empty where the group's members share them.
        declared: the consumer's name in the file.
        topics: all its topics, in order.
        by_route: the settings of messages for which a route says more than its handler, by the route's value.
        options: the topic's broker options.
        origins: the path in the file below which each field was found, by field name.
    """

    name: str
    topic: str
    broker: str
    group: str
    handler: Any
    accepts: AcceptsOption | None
    body_version: BodyVersionOption | None
    routes: RoutesOption | None
    effects: Effects
    transactional: bool
    key: str
    version: str | None
    identity: tuple[str, ...]
    format: str
    schema: Any
    strategies: tuple[StrategyChoice, ...]
    retry: RetryPolicy
    retry_rules: tuple[RetryRule, ...]
    hold_key: bool | None
    expires_after: timedelta | None
    deadline: str | None
    bury_expired: bool
    delay_by: str
    delay_limit: timedelta
    on_dead: Any
    hold_dead: int | None
    keep: timedelta
    workers: int
    in_flight: int
    unit_time: timedelta
    reply: bool
    isolate: bool
    batch_limit: int
    batch: BatchRule | None
    soft_limit: timedelta | None
    hard_limit: timedelta | None
    publishes: tuple[str, ...] | None
    formerly: tuple[str, ...]
    middlewares: tuple[Any, ...]
    breakers: tuple[BreakerRule, ...]
    rate: RateRule | None
    concurrency: ConcurrencyRule | None
    instance: str
    declared: str
    topics: tuple[str, ...]
    by_route: Mapping[str, "ConsumerSettings"]
    options: dict[str, Any] = field(repr=False)
    origins: dict[str, Path] = field(repr=False)

    @property
    def handler_text(self) -> str:
        """Return what people read of its handler, or handlers: `handlers:paid`."""
        if self.routes is None:
            return _function_text(self.handler)
        handlers = [f"{value}: {_function_text(found)}" for value, found in self.routes.handlers.items()]
        return f"by {self.routes.by}: {{{', '.join(handlers)}}}"

    @property
    def differing(self) -> dict[str, dict[str, Any]]:
        """Return what differs for the messages of each route, by its value and the option's name; none where nothing does."""
        found = {
            value: {
                name: getattr(route, name)
                for name in _BY_ROUTE
                if getattr(route, name) != getattr(self, name)
            }
            for value, route in self.by_route.items()
        }
        for value, different in found.items():
            if different.pop("retry_rules", ()):
                different["retry"] = self.by_route[value].retry
        return {value: different for value, different in found.items() if different}

    @property
    def ledger_name(self) -> str:
        """Return its name in the ledger and in Redis: the first name it ever had, and the instance of a broadcast."""
        return self._as_instance(self.formerly[0] if self.formerly else self.declared)

    @property
    def other_names(self) -> tuple[str, ...]:
        """Return its further names, under which data may be left."""
        names = (*self.formerly[1:], self.declared) if self.formerly else ()
        return tuple(self._as_instance(name) for name in names)

    @property
    def fans_in(self) -> bool:
        """Return whether it is one of several topics of its consumer."""
        return self.name != self.declared

    @property
    def place(self) -> int:
        """Return which of its consumer's topics it reads, from 0."""
        return self.topics.index(self.topic)

    @property
    def kind(self) -> UnitKind:
        """Return the kind of its units."""
        return UnitKind.TRANSACTIONAL if self.transactional else UnitKind.DIRECT

    def _as_instance(self, name: str) -> str:
        return f"{name}{AT}{self.instance}" if self.instance else name

    def path(self, where: str = "") -> Path:
        """Return the path in the file of `where`: `strategies[0].keep`, or from topic, broker or database on."""
        steps = parse_where(where)
        if not steps:
            return ("consumers", self.declared)
        if steps == ("instance",):
            return steps
        roots: dict[str | int, Path] = {
            "topic": ("topics", self.topic),
            "broker": ("brokers", self.broker),
            "database": ("database",),
        }
        if len(steps) > 1 and steps[0] in roots:
            return (*roots[steps[0]], *steps[1:])
        return (*self.origins.get(str(steps[0]), ("consumers", self.declared)), *steps)


def _function_text(handler: Any) -> str:
    return handler if isinstance(handler, str) else str(getattr(handler, "__name__", repr(handler)))


def parse_where(where: str) -> Path:
    """Return `strategies[0].keep` as steps."""
    steps: list[str | int] = []
    for part in where.replace("[", ".[").split("."):
        if part.startswith("[") and part.endswith("]") and part[1:-1].isdigit():
            steps.append(int(part[1:-1]))
        elif part:
            steps.append(part)
    return tuple(steps)


class _Sources:
    """Places where a field may be declared, the nearest first."""

    def __init__(self, sources: Sequence[tuple[Path, Section | None]]) -> None:
        self._sources = sources
        self.origins: dict[str, Path] = {}

    def first(self, *names: str, default: Any = None) -> Any:
        """Return the nearest declared value of the field at the path `names`."""
        for path, section in self._sources:
            value = _value(section, names)
            if value is not None:
                self.origins[names[0].rstrip("_")] = path
                return value
        return default

    def retry(self) -> RetryPolicy:
        """Return the policy without the rules by exception."""
        usual = RetryPolicy()
        return RetryPolicy(
            attempts=self.first("retry", "attempts", default=usual.attempts),
            first=self.first("retry", "backoff", "first", default=usual.first),
            factor=self.first("retry", "backoff", "factor", default=usual.factor),
            max=self.first("retry", "backoff", "max", default=usual.max),
            jitter=self.first("retry", "backoff", "jitter", default=usual.jitter),
            immediate=self.first("retry", "immediate", default=usual.immediate),
            asked_in=(self.first("retry", "attempts_from", default="")).removeprefix("headers."),
        )

    def breakers(self) -> Iterator[BreakerRule]:
        """Yield the rules of breakers: of each kind the nearest one."""
        for kind in BreakerKind:
            declared = self.first("breakers", kind.value)
            if declared is not None:
                options = declared.model_dump(exclude_none=True)
                if declared.action is not None:
                    options["action"] = BreakerAction(declared.action)
                yield BreakerRule(kind, **options)

    def retry_rules(self, usual: RetryPolicy) -> Iterator[RetryRule]:
        """Yield the rules by exception: of each class the nearest one, with what it leaves out as `usual`."""
        found = set[Any]()
        for path, section in self._sources:
            declared = getattr(section, "retry", None)
            if not isinstance(declared, Retry):
                continue
            here = (*path, "retry")
            never = [
                (("never", at), kind, replace(usual, attempts=1, immediate=0))
                for at, kind in enumerate(declared.never or ())
            ]
            other = [
                (("errors", kind) if kind in (declared.errors or {}) else (kind,), kind, _merged(rule, usual))
                for kind, rule in declared.by_error.items()
            ]
            for below, kind, policy in (*never, *other):
                if kind not in found:
                    yield RetryRule(kind, policy, (*here, *below))
            found |= {kind for _, kind, _ in (*never, *other)}


def _merged(rule: DeclaredRule, usual: RetryPolicy) -> RetryPolicy:
    pauses = {} if rule.backoff is None else rule.backoff.model_dump(exclude_none=True)
    return replace(usual, **rule.model_dump(include={"attempts", "immediate"}, exclude_none=True), **pauses)


def settle(name: str, consumer: Consumer, topic_name: str, broker: str, model: AppModel) -> ConsumerSettings:
    """Return the consumer's settings for one of its topics: its own, else the topic's, else the defaults; and its routes'."""
    sources: list[tuple[Path, Section | None]] = [
        (("consumers", name), consumer),
        (("topics", topic_name), model.topics[topic_name]),
        (("defaults",), model.defaults),
    ]
    own = _settled(name, consumer, topic_name, broker, model, sources)
    if consumer.routes is None or not consumer.routes.different:
        return own
    found: dict[str, ConsumerSettings] = {}
    for value, route in consumer.routes.different.items():
        place = ("consumers", name, *consumer.routes.path(value))
        found[value] = _settled(name, consumer, topic_name, broker, model, [(place, route), *sources])
    return replace(own, by_route=found)


def _settled(
    name: str,
    consumer: Consumer,
    topic_name: str,
    broker: str,
    model: AppModel,
    places: Sequence[tuple[Path, Section | None]],
) -> ConsumerSettings:
    sources = _Sources(places)
    has_database = model.database is not None
    effects = Effects(sources.first("effects", default="database" if has_database else "external"))
    transactional = effects is Effects.DATABASE and has_database
    key = sources.first("key", default=())
    formerly = consumer.formerly or ()
    usual = sources.retry()
    hold_dead = _hold_dead(sources.first("on_dead"))
    rate: RateRule | None = sources.first("rate")
    sources.origins["options"] = ("topics", topic_name)
    group = consumer.group or f"{model.app}-{formerly[0] if formerly else name}"
    if consumer.topics is not None:
        group = consumer.topics[topic_name] or consumer.group or group_of(group, topic_name)
    return ConsumerSettings(
        name=name if consumer.topics is None else f"{name}{BETWEEN}{topic_name}",
        topic=topic_name,
        broker=broker,
        group=group,
        handler=consumer.handler,
        accepts=consumer.accepts,
        body_version=model.topics[topic_name].body_version,
        routes=consumer.routes,
        effects=effects,
        transactional=transactional,
        key=key[0] if len(key) == 1 else f"[{', '.join(key)}]" if key else "",
        version=sources.first("version"),
        identity=sources.first("identity", default=()),
        format=sources.first("format", default="json"),
        schema=sources.first("schema_"),
        strategies=sources.first("strategies", default=()),
        retry=usual,
        retry_rules=tuple(sources.retry_rules(usual)),
        hold_key=_chosen(sources.first("on_retry"), hold_dead),
        expires_after=sources.first("expires", "after"),
        deadline=sources.first("expires", "deadline"),
        bury_expired=sources.first("expires", "then") == "dead_letter",
        delay_by=sources.first("asked_delay", "by", default=""),
        delay_limit=sources.first("asked_delay", "limit", default=timedelta(0)),
        on_dead=sources.first("on_dead", "run"),
        hold_dead=hold_dead,
        keep=sources.first("keep", default=DEFAULT_KEEP),
        workers=sources.first("workers", default=1 if transactional else EXTERNAL_WORKERS),
        in_flight=sources.first("in_flight", default=_in_flight(rate)),
        unit_time=sources.first("unit_time", default=DEFAULT_UNIT_TIME),
        reply=sources.first("reply", default=False),
        isolate=sources.first("isolate", default=False),
        batch_limit=sources.first("batch", "limit", default=DEFAULT_BATCH_LIMIT),
        batch=_batch(sources.first("batch", "within"), sources.first("batch", "by")),
        soft_limit=sources.first("limits", "soft"),
        hard_limit=sources.first("limits", "hard"),
        publishes=consumer.publishes,
        formerly=formerly,
        middlewares=consumer.middlewares or (),
        breakers=tuple(sources.breakers()),
        rate=rate,
        concurrency=_concurrency(sources.first("concurrency")),
        instance=(model.instance or "") if consumer.mode == BROADCAST else "",
        declared=name,
        topics=consumer.topic_names,
        by_route={},
        options=model.topics[topic_name].options,
        origins=sources.origins,
    )


def _concurrency(declared: Concurrency | None) -> ConcurrencyRule | None:
    return None if declared is None else ConcurrencyRule(declared.by, declared.limit)


def _batch(within: timedelta | None, by: str | None) -> BatchRule | None:
    return BatchRule(within.total_seconds() if within else 0.0, by or "") if within or by else None


def _in_flight(rate: RateRule | None) -> int:
    """Return how many messages are held by default: no more than pass in ten seconds, or others would wait here for no use."""
    if rate is None:
        return DEFAULT_IN_FLIGHT
    return max(1, min(DEFAULT_IN_FLIGHT, round(max(rate.burst or 1, rate.limit * _HELD_FOR))))


def _chosen(on_retry: str | None, hold_dead: int | None) -> bool | None:
    """Return whether a retry holds its key; with held dead letters it does unless the contrary is written."""
    if on_retry is None:
        return None if hold_dead is None else True
    return on_retry == "hold_key"


def _hold_dead(on_dead: OnDead | None) -> int | None:
    if on_dead is None or not on_dead.hold_key:
        return None
    return DEFAULT_HELD if on_dead.most is None else on_dead.most


def _value(section: Any, names: Sequence[str]) -> Any:
    for name in names:
        # An adapter's options are attributes too, and are not validated yet.
        declared = isinstance(section, BaseModel) and name in type(section).model_fields
        section = getattr(section, name) if declared else None
    return section
