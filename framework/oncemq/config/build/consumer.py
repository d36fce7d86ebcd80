"""Builds a consumer from its settings: imports the handler, builds the strategies, checks everything."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from oncemq.common.problems import Problem
from oncemq.common.redaction import Redactor
from oncemq.config.build.around_handlers import (
    after_commit_of,
    bind_on_dead,
    build_middlewares,
    build_upcasts,
    expiry_of,
    guard_of,
)
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
from oncemq.config.build.consumers.chains import build_chain
from oncemq.config.build.consumers.context import BuildContext
from oncemq.config.build.consumers.handlers import bind_handlers, find_function, find_functions
from oncemq.config.build.payload_fields import check_fields
from oncemq.config.build.reader import build_reader
from oncemq.config.build.retry_rules import with_rules
from oncemq.config.build.shared_parts import Reporter, subscription_of, written
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.contracts.checks import ConsumerFacts
from oncemq.contracts.publisher import Publishers, unknown_topic
from oncemq.contracts.strategy import Strategy
from oncemq.engine.plan import ConsumerPlan, Part
from oncemq.handler.binding import BoundHandler
from oncemq.handler.upcasting import Upcast
from oncemq.message.outgoing import OutgoingTopic

if TYPE_CHECKING:
    pass


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
    functions = find_functions(settled, around)
    middlewares = build_middlewares(
        settled.middlewares, settled.path("middlewares"), around.folder, around.report, around.middlewares
    )
    # From here on they are all of this consumer's, in the order of their calls.
    around = replace(around, middlewares=middlewares)
    allowed = _publishable(settled, around, topics)
    publishers = Publishers(allowed)
    chain = build_chain(settled, around, publishers)
    reader = build_reader(settled, around.folder, around.report, around.claims.get(settled.topic))
    handler = None
    upcast = None
    if reader is not None:
        upcast = build_upcasts(settled, around.folder, around.report, around.registry, reader.decode)
    if functions is not None and chain is not None:
        handler = bind_handlers(functions, chain, settled, around, publishers, upcast)
    _check(settled, around, chain, handler)
    find = partial(find_function, path=settled.path("on_dead"), around=around)
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
        chain = build_chain(settled, there, publishers)
        handler = (
            bind_handlers(functions, chain, settled, there, publishers, upcast) if chain is not None else None
        )
        if chain is None or handler is None:
            return None
        parts.append(Part(tuple(chain), handler))
    return tuple(parts)


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
