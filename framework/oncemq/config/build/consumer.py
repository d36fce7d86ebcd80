"""Builds a consumer from its settings: imports the handler, builds the strategies, checks everything."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from oncemq.common.problems import Problem
from oncemq.common.redaction import Redactor
from oncemq.config.build.around_handlers import (
    after_commit_of,
    asked_delay_of,
    bind_on_dead,
    build_middlewares,
    build_upcasts,
    expiry_of,
    guard_of,
)
from oncemq.config.build.consumer_rules import (
    check_batch,
    check_breakers,
    check_broadcast,
    check_chain,
    check_concurrency,
    check_effects,
    check_hold,
    check_identity,
    check_isolation,
    check_rate,
    check_times,
)
from oncemq.config.build.consumers.chains import Chains, build_chains
from oncemq.config.build.consumers.context import BuildContext
from oncemq.config.build.consumers.handlers import bind_handlers, find_function, find_functions
from oncemq.config.build.consumers.route_rules import check_routes
from oncemq.config.build.reading.payload_fields import check_fields
from oncemq.config.build.reading.reader import build_reader
from oncemq.config.build.retry_rules import with_rules
from oncemq.config.build.shared_parts import Reporter, subscription_of, written
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.config.model.routes_section import OTHERWISE
from oncemq.contracts.checks import ConsumerFacts
from oncemq.contracts.publisher import Publishers, unknown_topic
from oncemq.contracts.strategy import Strategy
from oncemq.engine.base.asked_delay import LONGEST_HOP
from oncemq.engine.plan import ConsumerPlan, Part, RoutePlan
from oncemq.handler.binding import BoundHandler
from oncemq.handler.upcasting import Upcast
from oncemq.message.outgoing import OutgoingTopic


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
    settled = with_retries(settled, around)
    functions = find_functions(settled, around)
    middlewares = build_middlewares(
        settled.middlewares, settled.path("middlewares"), around.folder, around.report, around.middlewares
    )
    # From here on they are all of this consumer's, in the order of their calls.
    around = replace(around, middlewares=middlewares)
    allowed = _publishable(settled, around, topics)
    publishers = Publishers(allowed)
    chains = build_chains(settled, around, publishers)
    bodies = around.bodies.get(settled.topic)
    check = None if bodies is None else bodies.check
    reader = build_reader(settled, around.folder, around.report, around.claims.get(settled.topic), check)
    handler = None
    upcast = None
    if reader is not None:
        upcast = build_upcasts(
            settled, around.folder, around.report, around.registry, reader.decode, around.bodies
        )
    if functions is not None and chains is not None:
        handler = bind_handlers(functions, chains, settled, around, publishers, upcast)
    _check_all(settled, around, chains, handler)
    every = chains.lists if chains is not None else ((),)
    find = partial(find_function, path=settled.path("on_dead"), around=around)
    on_dead = bind_on_dead(settled, every, find, publishers, around.report, upcast)
    last = (
        *expiry_of(settled, around.clock, around.report),
        *asked_delay_of(settled, around.clock, around.report),
        *guard_of(settled),
        *after_commit_of(settled, around.middlewares, every, handler, around.adapters, around.report),
    )
    if handler is None or chains is None or reader is None or len(around.report.problems.errors) > before:
        return None
    parts = _more_parts(functions or {}, settled, around, publishers, upcast)
    if parts is None:
        return None
    strategies = [strategy for chain in chains.lists for strategy in chain]
    limits = [strategy.traits.max_batch for strategy in strategies if strategy.traits.max_batch is not None]
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
        strategies=(*chains.lists[0], *last),
        retry=settled.retry,
        workers=settled.workers,
        unit_time=settled.unit_time,
        isolate=settled.isolate,
        batch_limit=min([settled.batch_limit, *limits]),
        soft_limit=settled.soft_limit,
        hard_limit=settled.hard_limit,
        hold_key=holds_key(settled, strategies),
        hold_dead=settled.hold_dead,
        redact=Redactor(around.report.problems.secrets, row_values=around.row_values),
        keep=settled.keep if strategies else None,
        history_keys=around.history_keys.get(settled.broker),
        more_parts=tuple(Part((*of_shard.lists[0], *last), bound) for of_shard, bound in parts),
        routes=tuple(
            RoutePlan(value, route.retry, chains.numbers[value]) for value, route in settled.by_route.items()
        ),
        more_chains=tuple(
            tuple(Part((*on.lists[number], *last), bound) for on, bound in ((chains, handler), *parts))
            for number in range(1, len(chains.lists))
        ),
        other_scopes=tuple(f"{around.app}.{other}" for other in settled.other_names),
        on_dead=on_dead,
        breakers=settled.breakers,
        rate=settled.rate,
        concurrency=settled.concurrency,
        batch=settled.batch,
        claims=around.claims.get(settled.topic),
        declared=settled.declared,
        place=settled.place,
    )


def _more_parts(
    functions: Mapping[str, Any],
    settled: ConsumerSettings,
    around: BuildContext,
    publishers: Publishers,
    upcast: Upcast | None,
) -> list[tuple[Chains, BoundHandler]] | None:
    """Build strategies and handler again for every shard but the first; each uses its own tables."""
    parts = []
    for engine, metadata in around.more_shards:
        there = replace(around, engine=engine, metadata=metadata)
        chains = build_chains(settled, there, publishers)
        if chains is None:
            return None
        handler = bind_handlers(functions, chains, settled, there, publishers, upcast)
        if handler is None:
            return None
        parts.append((chains, handler))
    return parts


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


def with_retries(settled: ConsumerSettings, around: BuildContext) -> ConsumerSettings:
    """Return the settings with the rules of `retry:` by exception, also those of routes."""
    usual = with_rules(settled, around.folder, around.report)
    routes = {}
    for value, route in settled.by_route.items():
        same = (route.retry, route.retry_rules) == (settled.retry, settled.retry_rules)
        routes[value] = replace(
            route, retry=usual if same else with_rules(route, around.folder, around.report)
        )
    return replace(settled, retry=usual, by_route=routes)


def _check_all(
    settled: ConsumerSettings, around: BuildContext, chains: Chains | None, handler: BoundHandler | None
) -> None:
    """Check the consumer, then each route that differs from it: what is wrong with both is said once."""
    own = _check(
        settled, around, chains.lists[0] if chains is not None else None, handler, _payloads(settled, handler)
    )
    note_all(own, settled, around.report)
    for value, route in settled.by_route.items():
        payloads = _payloads(settled, handler, value)
        found = _check(route, around, chains.of(value) if chains is not None else None, handler, payloads)
        note_all([problem for problem in found if problem not in own], route, around.report)
    for route, problem in check_routes(settled, chains) if chains is not None else ():
        note_all([problem], route, around.report)


def _payloads(
    settled: ConsumerSettings, handler: BoundHandler | None, route: str | None = None
) -> Sequence[Any]:
    """Return the payload types of a route, or of all messages that are as the consumer declares."""
    if handler is None:
        return ()
    if settled.routes is None or not settled.by_route:
        return handler.payloads
    found = dict(zip((*settled.routes.handlers, OTHERWISE), handler.routes, strict=False))
    wanted = found.keys() - settled.by_route.keys() if route is None else [route]
    return [found[value].payload for value in wanted if found[value].payload is not None]


def _check(
    settled: ConsumerSettings,
    around: BuildContext,
    chain: list[Strategy] | None,
    handler: BoundHandler | None,
    payloads: Iterable[Any],
) -> list[Problem]:
    facts = facts_of(settled, around, handler, hold_key=holds_key(settled, chain or ()))
    found: list[Problem] = [
        *check_effects(facts),
        *check_hold(facts, settled.hold_dead, sharded=bool(around.more_shards)),
        *check_isolation(facts),
        *check_times(facts),
        *check_identity(facts),
        *check_breakers(facts, settled.breakers),
        *check_concurrency(facts, settled.concurrency),
        *check_batch(facts, settled, handler),
        *check_rate(facts, settled.rate, has_redis=around.redis is not None),
    ]
    for payload in payloads:
        found += check_fields(settled, payload)
    adapter = around.adapters.get(settled.broker)
    found += check_broadcast(facts, chain or (), adapter, sharded=bool(around.more_shards))
    if adapter is not None:
        found += adapter.check(facts)
    if chain is not None:
        found += check_chain(facts, chain, settled.kind)
        for index, strategy in enumerate(chain):
            found += (_below(problem, index) for problem in strategy.check(facts))
    return found


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
        longest_pause=max(settled.retry.longest_pause(), min(settled.delay_limit, LONGEST_HOP)),
        publishes=handler.publishes if handler is not None else False,
        routes_by=settled.routes.by if settled.routes is not None else "",
        routes=tuple(settled.routes.handlers) if settled.routes is not None else (),
        instance=settled.instance,
    )
