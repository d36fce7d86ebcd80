"""Builds a consumer from its settings: imports the handler, builds the strategies, checks everything."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Engine, MetaData

from oncemq.common.clock import Clock
from oncemq.common.error_text import describe
from oncemq.common.problems import Problem
from oncemq.common.redaction import Redactor
from oncemq.config.build.around_handlers import (
    after_commit_of,
    bind_on_dead,
    build_middlewares,
    build_upcasts,
    expiry_of,
    guard_of,
    require_payload,
    with_spans,
)
from oncemq.config.build.catalog import Catalog
from oncemq.config.build.consumer_rules import (
    check_breakers,
    check_broadcast,
    check_chain,
    check_effects,
    check_hold,
    check_identity,
    check_isolation,
    check_rate,
    check_times,
)
from oncemq.config.build.importing import import_object, reference_of
from oncemq.config.build.payload_fields import check_fields
from oncemq.config.build.reader import build_reader
from oncemq.config.build.retry_rules import with_rules
from oncemq.config.build.shared_parts import Reporter, subscription_of, written
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.config.model.fields import WrongValue, reference
from oncemq.config.model.routes_section import IGNORE, OTHERWISE, REJECT
from oncemq.contracts.adapter import Adapter
from oncemq.contracts.arguments import ArgumentScope
from oncemq.contracts.checks import ConsumerFacts
from oncemq.contracts.publisher import Publisher, Publishers, unknown_topic
from oncemq.contracts.strategy import Scope, Strategy
from oncemq.engine.plan import ConsumerPlan, Part
from oncemq.errors import ConfigError, OnceMQError
from oncemq.handler.binding import BoundHandler, bind
from oncemq.handler.middlewares import Middleware, with_middlewares
from oncemq.handler.routes import with_routes
from oncemq.handler.signature import Getter
from oncemq.handler.upcasting import Upcast
from oncemq.ledger.database.async_engine import async_driver
from oncemq.message.claims.claim_check import ClaimCheck
from oncemq.message.expressions import compile_expression
from oncemq.message.outgoing import OutgoingTopic
from oncemq.message.signed_history import HistoryKeys
from oncemq.redis.client import RedisClient
from oncemq.schemas.registry import Registry

if TYPE_CHECKING:
    from oncemq.observe.otel.tracing import Tracing


_OTHERS: Final = ""
"""Stands for the handler of `otherwise` among the values of routes, none of which is empty."""


@dataclass(frozen=True, slots=True)
class BuildContext:
    """Shared inputs for building all consumers of an app.

    Args:
        app: the app's name.
        folder: the folder of the app's file.
        adapters: by broker name; without those that could not be built.
        engine: the app's database; None if there is none, or it could not be created.
        dialect: the database's dialect name; empty without a database.
        metadata: shared by all strategies.
        redis: the app's Redis; None if there is none, or it could not be created.
        more_shards: engine and metadata of every shard but the first.
        clock: the source of time.
        catalog: the available strategies.
        report: receives problems.
        row_values: whether errors may show row values.
        history_keys: by broker name.
        tracing: makes spans; None without.
        schemes: of the brokers' URLs, by broker name.
        middlewares: of the app; around those of a consumer.
        registry: the registered versions of payload schemas.
        generations: records of applied messages are in generations.
        claims: where large bodies lie, by topic.
    """

    app: str
    folder: Path
    adapters: Mapping[str, Adapter]
    engine: Engine | None
    dialect: str
    metadata: MetaData
    redis: RedisClient | None
    more_shards: tuple[tuple[Engine, MetaData], ...]
    clock: Clock
    catalog: Catalog
    report: Reporter
    row_values: bool = False
    history_keys: Mapping[str, HistoryKeys] = field(default_factory=dict)
    tracing: "Tracing | None" = None
    schemes: Mapping[str, str] = field(default_factory=dict)
    middlewares: tuple[Middleware, ...] = ()
    registry: Registry = field(default_factory=Registry)
    generations: bool = False
    claims: Mapping[str, ClaimCheck] = field(default_factory=dict)


def build_consumer(
    settled: ConsumerSettings, around: BuildContext, topics: Mapping[str, OutgoingTopic]
) -> ConsumerPlan | None:
    """Return the consumer's plan, or None if it cannot run; the reason is reported.

    Args:
        settled: its settings.
        around: shared inputs for all consumers.
        topics: the topics its handler may publish to.
    """
    before = len(around.report.problems.errors)
    settled = replace(settled, retry=with_rules(settled, around.folder, around.report))
    functions = _functions(settled, around)
    middlewares = build_middlewares(
        settled.middlewares, settled.path("middlewares"), around.folder, around.report, around.middlewares
    )
    # From here on they are all of this consumer's, in the order of their calls.
    around = replace(around, middlewares=middlewares)
    allowed = _publishable(settled, around, topics)
    publishers = Publishers(allowed)
    chain = _strategies(settled, around, publishers)
    reader = build_reader(settled, around.folder, around.report, around.claims.get(settled.topic))
    handler = None
    upcast = None
    if reader is not None:
        upcast = build_upcasts(settled, around.folder, around.report, around.registry, reader.decode)
    if functions is not None and chain is not None:
        handler = _bind(functions, chain, settled, around, publishers, upcast)
    _check(settled, around, chain, handler)
    find = partial(_function, path=settled.path("on_dead"), around=around)
    on_dead = bind_on_dead(settled, chain or (), find, publishers, around.report, upcast)
    last = (
        *expiry_of(settled, around.clock, around.report),
        *guard_of(settled),
        *after_commit_of(settled, around.middlewares, chain or (), handler, around.adapters, around.report),
    )
    if handler is None or chain is None or reader is None or len(around.report.problems.errors) > before:
        return None
    parts = _more_parts(functions or {}, settled, around, publishers, upcast)
    if parts is None:
        return None
    limits = [strategy.traits.max_batch for strategy in chain if strategy.traits.max_batch is not None]
    return ConsumerPlan(
        name=settled.name,
        scope=f"{around.app}.{settled.ledger_name}",
        broker=settled.broker,
        subscription=subscription_of(
            settled, f"{around.app}.{settled.ledger_name}", around.engine, around.clock
        ),
        reader=reader,
        handler=handler,
        effects=settled.effects,
        strategies=(*chain, *last),
        retry=settled.retry,
        workers=settled.workers,
        unit_time=settled.unit_time,
        isolate=settled.isolate,
        batch_limit=min([settled.batch_limit, *limits]),
        soft_limit=settled.soft_limit,
        hard_limit=settled.hard_limit,
        hold_key=holds_key(settled, chain),
        redact=Redactor(around.report.problems.secrets, row_values=around.row_values),
        keep=settled.keep if chain else None,
        history_keys=around.history_keys.get(settled.broker),
        more_parts=tuple(Part((*part.strategies, *last), part.handler) for part in parts),
        other_scopes=tuple(f"{around.app}.{other}" for other in settled.other_names),
        on_dead=on_dead,
        breakers=settled.breakers,
        rate=settled.rate,
        claims=around.claims.get(settled.topic),
    )


def _more_parts(
    functions: Mapping[str, Any],
    settled: ConsumerSettings,
    around: BuildContext,
    publishers: Publishers,
    upcast: Upcast | None,
) -> tuple[Part, ...] | None:
    """Build strategies and handler again for every shard but the first; each uses its own tables."""
    parts = []
    for engine, metadata in around.more_shards:
        there = replace(around, engine=engine, metadata=metadata)
        chain = _strategies(settled, there, publishers)
        handler = _bind(functions, chain, settled, there, publishers, upcast) if chain is not None else None
        if chain is None or handler is None:
            return None
        parts.append(Part(tuple(chain), handler))
    return tuple(parts)


def _functions(settled: ConsumerSettings, around: BuildContext) -> Mapping[str, Any] | None:
    """Return the functions of the handlers, by the option, or the value in the message, that names each.

    None if one is not usable; all are tried, so that all problems are reported at once.
    """
    named = _named_handlers(settled)
    found = {name: _function(handler, _path_of(name, settled), around) for name, handler in named.items()}
    return None if None in found.values() else found


def _named_handlers(settled: ConsumerSettings) -> dict[str, Any]:
    """Return what the file says for each handler: `module:name`, or the function."""
    if settled.routes is None:
        return {"handler": settled.handler}
    others = {} if settled.routes.otherwise in (REJECT, IGNORE) else {_OTHERS: settled.routes.otherwise}
    return {**settled.routes.handlers, **others}


def _path_of(name: str, settled: ConsumerSettings) -> tuple[str | int, ...]:
    """Return the path in the file of a handler, by the option or the value that names it."""
    if settled.routes is None:
        return settled.path(name)
    return (*settled.path("routes"), name or OTHERWISE)


def _function(named: Any, path: tuple[str | int, ...], around: BuildContext) -> Any:
    try:
        found = named if callable(named) else import_object(named, around.folder)
    except WrongValue as error:
        around.report.error(path, error)
        return None
    if not callable(found):
        advice = "name a function: def handler(order: dict) -> None"
        around.report.at(path, f"{named!r} is not a function", advice)
        return None
    return found


def _strategies(
    settled: ConsumerSettings, around: BuildContext, publishers: Publishers
) -> list[Strategy] | None:
    """Return None if a strategy could not be built; all are tried, so that all problems are reported at once."""
    chain: list[Strategy] = []
    complete = True
    scope = _scope(settled, around, publishers)
    for index, choice in enumerate(settled.strategies):
        path = settled.path(f"strategies[{index}]")
        try:
            strategy = around.catalog.strategies.get(choice.name)
            if around.dialect and around.engine is None:
                complete = False
                continue
            built = strategy.build(written(choice.options), scope)
            built.name = choice.name
            chain.append(built)
        except ConfigError as error:
            around.report.error((*path, choice.name), error)
            complete = False
        except (OnceMQError, WrongValue, ValueError) as error:
            around.report.error(path, error)
            complete = False
        except Exception as error:
            around.report.at(path, f"strategy {choice.name} cannot be made: {describe(error)}")
            complete = False
    return chain if complete else None


def _scope(settled: ConsumerSettings, around: BuildContext, publishers: Publishers) -> Scope:
    def import_for_strategy(name: str) -> Any:
        try:
            return import_object(reference(name), around.folder)
        except WrongValue as error:
            problem = ConfigError([Problem(str(error), error.advice)])
        raise problem

    return Scope(
        app=around.app,
        consumer=f"{around.app}.{settled.ledger_name}",
        dialect=around.dialect,
        engine=around.engine,
        metadata=around.metadata,
        redis=around.redis,
        clock=around.clock,
        keep=settled.keep,
        retry_horizon=settled.retry.horizon(),
        expression=compile_expression,
        import_object=import_for_strategy,
        publishers=publishers,
        generations=around.generations and not settled.instance,
    )


def _bind(
    functions: Mapping[str, Any],
    chain: Sequence[Strategy],
    settled: ConsumerSettings,
    around: BuildContext,
    publishers: Publishers,
    upcast: Upcast | None,
) -> BoundHandler | None:
    provided: dict[type, Getter] = {
        wanted: give for strategy in chain for wanted, give in strategy.provides().items()
    } | {Publisher: publishers.of_item}
    bound_by, named = dict[str, BoundHandler](), _named_handlers(settled)
    for value, function in functions.items():
        try:
            bound = bind(
                function,
                name=reference_of(function, named[value]),
                provided=provided,
                shared={Publisher: publishers.of_run},
                effects=settled.effects,
                body_format=settled.format,
                upcast=upcast,
                arguments=ArgumentScope(compile_expression, around.redis),
            )
            bound_by[value] = require_payload(bound, upcast)
        except OnceMQError as error:
            around.report.error(_path_of(value, settled), error)
    if len(bound_by) < len(functions):
        return None
    routes = settled.routes
    try:
        if routes is None:
            (bound,) = bound_by.values()
        else:
            otherwise = bound_by.pop(_OTHERS, None)
            bound = with_routes(
                bound_by, routes.by, otherwise, settled.topic, ignore=routes.otherwise == IGNORE
            )
        if bound.is_async and settled.transactional and around.engine is not None:
            async_driver(around.engine)
        bound = with_middlewares(bound, around.middlewares, settled.name)
    except OnceMQError as error:
        around.report.error(settled.path("handler" if routes is None else "routes"), error)
        return None
    redact = Redactor(around.report.problems.secrets, row_values=around.row_values)
    return with_spans(bound, settled, around.tracing, around.schemes.get(settled.broker, ""), redact)


def _publishable(
    settled: ConsumerSettings, around: BuildContext, topics: Mapping[str, OutgoingTopic]
) -> Mapping[str, OutgoingTopic]:
    """Return the topics that the consumer declares it publishes to; all topics if it declares none."""
    own = [each.on_publish for each in around.middlewares if each.on_publish is not None]
    topics = {name: topic.with_hooks(own) for name, topic in topics.items()} if own else topics
    if settled.publishes is None:
        return topics
    for index, name in enumerate(settled.publishes):
        if name not in topics:
            around.report.at(settled.path(f"publishes[{index}]"), unknown_topic(name, topics))
    return {name: topics[name] for name in settled.publishes if name in topics}


def _check(
    settled: ConsumerSettings,
    around: BuildContext,
    chain: list[Strategy] | None,
    handler: BoundHandler | None,
) -> None:
    facts = facts_of(settled, around, handler, hold_key=holds_key(settled, chain or ()))
    found: list[Problem] = [
        *check_effects(facts),
        *check_hold(facts),
        *check_isolation(facts),
        *check_times(facts),
        *check_identity(facts),
        *check_breakers(facts, settled.breakers),
        *check_rate(facts, settled.rate, has_redis=around.redis is not None),
    ]
    for payload in handler.payloads if handler is not None else ():
        found += check_fields(settled, payload)
    adapter = around.adapters.get(settled.broker)
    found += check_broadcast(facts, chain or (), adapter, sharded=bool(around.more_shards))
    if adapter is not None:
        found += adapter.check(facts)
    if chain is not None:
        found += check_chain(facts, chain, settled.kind)
        for index, strategy in enumerate(chain):
            found += (_below(problem, index) for problem in strategy.check(facts))
    note_all(found, settled, around.report)


def note_all(found: Iterable[Problem], settled: ConsumerSettings, report: Reporter) -> None:
    """Report the problems found for a consumer at their places in the file."""
    for problem in found:
        text = f"{settled.name}: {problem.text}"
        report.note(
            settled.path(problem.where), Problem(text, problem.advice, problem.where, problem.severity)
        )


def _below(problem: Problem, index: int) -> Problem:
    """A strategy may omit its own position: it does not know its place in the chain."""
    if problem.where:
        return problem
    return Problem(problem.text, problem.advice, f"strategies[{index}]", problem.severity)


def holds_key(settled: ConsumerSettings, chain: Sequence[Strategy]) -> bool:
    """Return whether a key waits while one of its messages is retried: as declared, else as the chain requires."""
    if settled.hold_key is not None:
        return settled.hold_key
    return settled.transactional and any(strategy.traits.holds_key for strategy in chain)


def facts_of(
    settled: ConsumerSettings, around: BuildContext, handler: BoundHandler | None, *, hold_key: bool
) -> ConsumerFacts:
    """Return the facts about a consumer; `handler` is None if it cannot be called."""
    return ConsumerFacts(
        app=around.app,
        name=settled.name,
        topic=settled.topic,
        group=settled.group,
        effects=settled.effects,
        broker=settled.broker,
        strategies=tuple(choice.name for choice in settled.strategies),
        identity=settled.identity,
        has_version=settled.version is not None,
        keep=settled.keep,
        retry_horizon=settled.retry.horizon(),
        attempts=settled.retry.most_attempts,
        is_async=handler.is_async if handler is not None else False,
        dialect=around.dialect,
        workers=settled.workers,
        in_flight=settled.in_flight,
        unit_time=settled.unit_time,
        isolate=settled.isolate,
        soft_limit=settled.soft_limit,
        hard_limit=settled.hard_limit,
        hold_key=hold_key,
        options=written(settled.options),
        longest_pause=settled.retry.longest_pause(),
        publishes=handler.publishes if handler is not None else False,
        routes_by=settled.routes.by if settled.routes is not None else "",
        routes=tuple(settled.routes.handlers) if settled.routes is not None else (),
        instance=settled.instance,
    )
