"""Builds the plan that the engine runs; collects the problems of all parts before raising an error."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from sqlalchemy import Engine, MetaData

from oncemq.common.clock import Clock, SystemClock
from oncemq.config.build.around_handlers import build_middlewares, build_tracing
from oncemq.config.build.catalog import Catalog
from oncemq.config.build.consumer import build_consumer, facts_of
from oncemq.config.build.consumers.context import BuildContext
from oncemq.config.build.consumers.subscribing import with_selection
from oncemq.config.build.databases import (
    build_engines,
    build_generations,
    build_layout,
    connections_for,
    database_urls,
    whole_urls,
    with_generations,
)
from oncemq.config.build.exposure import warn_of_exposure
from oncemq.config.build.group_conflicts import (
    check_former_names,
    check_groups,
    check_private_names,
)
from oncemq.config.build.importing import make_importable
from oncemq.config.build.reading.body_checks import build_topic_bodies
from oncemq.config.build.reading.levels import check_levels
from oncemq.config.build.settling import brokers_of, settle_all
from oncemq.config.build.shared_columns import check_columns, owned_columns
from oncemq.config.build.shared_parts import (
    Reporter,
    build_adapters,
    build_history_keys,
    build_recycle,
    build_redis,
    build_registry,
    require_instance,
)
from oncemq.config.build.topics import OpenStore, build_claims, build_topics
from oncemq.config.model.app_model import AppModel
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.config.source.problems import ConfigProblem, Problems
from oncemq.config.source.tree import Fields
from oncemq.contracts.checks import ConsumerFacts
from oncemq.engine.breakers.recorder import BreakerRecorder
from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.ledger.database.server_clock import LedgerClock
from oncemq.message.claims.store import Store
from oncemq.observe.monitor import require_metrics
from oncemq.schemas.registry import Registry

DEFAULT_GRACE = timedelta(seconds=30)
DEFAULT_STATE = Path(".oncemq")


@dataclass(frozen=True, slots=True)
class Substitutes:
    """Parts that a test puts in the place of the app's own.

    Args:
        clock: the source of time.
        engines: returns an engine for each URL of the app's databases.
        catalog: available adapters and strategies, unless the app has its own.
        open_store: opens the store of a topic's large bodies.
    """

    clock: Clock = field(default_factory=SystemClock)
    engines: Callable[[Sequence[str]], Sequence[Engine]] | None = None
    catalog: Catalog | None = None
    open_store: OpenStore = Store


@dataclass(frozen=True, slots=True)
class LoadedApp:
    """An app that may start.

    Args:
        plan: input of the engine.
        model: the declaration; shows no values.
        consumers: every consumer's settings, in declaration order.
        warnings: to be shown to the operator.
        secrets: texts that logs must not show.
        facts: facts about every consumer, in the same order.
        tree: the source with positions.
        registry: the registered versions of payload schemas.
    """

    plan: AppPlan
    model: AppModel
    consumers: tuple[ConsumerSettings, ...] = field(repr=False)
    warnings: tuple[ConfigProblem, ...]
    secrets: frozenset[str] = field(repr=False)
    facts: tuple[ConsumerFacts, ...] = field(repr=False)
    tree: Fields = field(repr=False)
    registry: Registry = field(default_factory=Registry, repr=False)


def build_app(
    model: AppModel,
    tree: Fields,
    problems: Problems,
    folder: Path,
    catalog: Catalog | None = None,
    substitutes: Substitutes | None = None,
) -> LoadedApp:
    """Return the app ready to run.

    Args:
        model: as declared.
        tree: the source with positions.
        problems: those known so far.
        folder: the folder of the app's first file; its modules can be imported.
        catalog: available adapters and strategies; by default the installed ones.
        substitutes: parts to use instead of the app's own.

    Raises:
        ConfigError: the app cannot run; carries every problem.
    """
    instead = substitutes or Substitutes()
    make_importable(folder)
    report = Reporter(tree, problems)
    brokers = brokers_of(model, report)
    consumers = settle_all(model, brokers, report)
    engines = _engines(model, report, consumers, instead)
    try:
        known = catalog or instead.catalog or Catalog()
        return _build(model, report, folder, known, engines, brokers, consumers, instead)
    except BaseException:
        # Strategies may have read tables.
        for engine in engines:
            engine.dispose()
        raise


def _engines(
    model: AppModel, report: Reporter, consumers: list[ConsumerSettings], instead: Substitutes
) -> Sequence[Engine]:
    if model.database is None or instead.engines is None:
        return build_engines(model.database, report, connections_for(consumers))
    return instead.engines(whole_urls(model.database))


def _build(
    model: AppModel,
    report: Reporter,
    folder: Path,
    catalog: Catalog,
    engines: Sequence[Engine],
    brokers: Mapping[str, str],
    consumers: list[ConsumerSettings],
    instead: Substitutes,
) -> LoadedApp:
    problems = report.problems
    layout = build_layout(model.database, report)
    engine = engines[0] if engines else None
    clock = LedgerClock(instead.clock, engine)
    redis = build_redis(model.redis, report) if model.redis is not None else None
    tracing = build_tracing(model, report)
    middlewares = build_middlewares(model.middlewares or (), ("middlewares",), folder, report)
    registry = build_registry(model, folder, report)
    if consumers:  # `schemas check` tells more, and has none
        check_levels(model, registry, report)
    bodies = build_topic_bodies(model, registry, report)
    generations = build_generations(model, engine, consumers, report)
    claims = build_claims(model, consumers, clock, report, instead.open_store)
    around = BuildContext(
        app=model.app,
        folder=folder,
        adapters=build_adapters(model, model.brokers, catalog, instead.clock, report),
        engine=engine,
        dialect=_dialect(model, engine),
        metadata=MetaData(),
        redis=redis,
        more_shards=tuple((shard, MetaData()) for shard in engines[1:]),
        clock=clock,
        catalog=catalog,
        report=report,
        history_keys=build_history_keys(model, report),
        row_values=model.logging is not None and model.logging.row_values,
        tracing=tracing,
        schemes={name: broker.url.scheme for name, broker in model.brokers.items()},
        middlewares=middlewares,
        registry=registry,
        bodies=bodies,
        generations=generations is not None,
        claims=claims,
    )
    hooks = [each.on_publish for each in middlewares if each.on_publish is not None]
    topics = {
        name: topic.with_hooks(hooks)
        for name, topic in build_topics(
            model, brokers, folder, report, around.adapters, clock, tracing, claims, bodies
        ).items()
    }
    require_instance(model, consumers, report)
    consumers = [with_selection(settled, around.adapters, report) for settled in consumers]
    plans = [build_consumer(settled, around, topics) for settled in consumers]
    warn_of_exposure(model, report)
    check_groups(consumers, report)
    check_former_names(consumers, report)
    check_private_names(plans, around.adapters, report)
    _check_columns(consumers, plans, report)
    recycle = build_recycle(model, around.adapters, report)
    problems.raise_errors()
    if model.http is not None:
        require_metrics()
    plan = AppPlan(
        name=model.app,
        adapters=around.adapters,
        engine=engine,
        redis=redis,
        consumers=tuple(with_generations(plan, generations) for plan in plans if plan is not None),
        clock=clock,
        topics=topics,
        keep={f"{model.app}.{settled.ledger_name}": settled.keep for settled in consumers},
        state=folder / (model.state or DEFAULT_STATE),
        grace=model.grace or DEFAULT_GRACE,
        http=model.http.address if model.http is not None else None,
        more_engines=tuple(engines[1:]),
        layout=layout,
        tracing=tracing,
        breakers=_breakers(consumers, clock),
        recycle=recycle,
        claims=tuple(claims.values()),
        warnings=tuple(str(warning) for warning in problems.warnings),
    )
    return LoadedApp(
        plan,
        model,
        tuple(consumers),
        tuple(problems.warnings),
        frozenset(problems.secrets),
        tuple(
            # With the rules by exception, which are imported with the handler.
            facts_of(replace(settled, retry=ready.retry), around, ready.handler, hold_key=ready.hold_key)
            for settled, ready in zip(consumers, plan.consumers, strict=True)
        ),
        report.tree,
        registry,
    )


def _breakers(consumers: Sequence[ConsumerSettings], clock: Clock) -> BreakerRecorder | None:
    rules = {settled.name: settled.breakers for settled in consumers if settled.breakers}
    return BreakerRecorder(rules, clock) if rules else None


def _dialect(model: AppModel, engine: Engine | None) -> str:
    if engine is not None:
        return engine.dialect.name
    urls = database_urls(model.database)
    return urls[0].scheme.partition("+")[0] if urls else ""


def _check_columns(
    consumers: Sequence[ConsumerSettings], plans: Sequence[ConsumerPlan | None], report: Reporter
) -> None:
    settled = {consumer.name: consumer for consumer in consumers}
    columns = [column for plan in plans if plan is not None for column in owned_columns(plan)]
    for name, problem in check_columns(columns):
        report.note(settled[name].path(problem.where), problem)
