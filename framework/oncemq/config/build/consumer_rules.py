"""Rules that the framework checks for a consumer, with every broker and strategy."""

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

from sqlalchemy import MetaData

from oncemq.common.durations import format_duration
from oncemq.common.problems import Problem, Severity
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.contracts.adapter import Adapter
from oncemq.contracts.checks import ConsumerFacts, Effects, UnitKind
from oncemq.contracts.strategy import Strategy
from oncemq.engine.breakers.rule import BreakerAction, BreakerKind, BreakerRule
from oncemq.engine.rates.rate_limit import burst_of
from oncemq.engine.rates.rule import ConcurrencyRule, RateRule
from oncemq.handler.binding import BoundHandler
from oncemq.ledger.records import key_fingerprints
from oncemq.message.expressions import compile_expression, is_constant

_INSTANCE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_LONGEST_FILL = 60.0
"""Seconds; far below what brokers leave a message with a consumer, also where it is tried several times."""
_HELD_TOO_LONG = 600.0
"""Seconds; RabbitMQ takes messages back after 30 minutes, and others behind one message wait for it."""
SAID_ALOUD = "none"
"""The only strategy name that the framework knows: it declares that no protection is wanted."""


def check_chain(facts: ConsumerFacts, chain: Sequence[Strategy], kind: UnitKind) -> Iterable[Problem]:
    """Yield the problems of the strategies as a chain."""
    if not chain:
        yield Problem(
            "no strategies, so a message that is delivered twice takes effect twice",
            "write strategies: [unique_key], or [none] if that is meant",
        )
        return
    yield from _kinds(facts, chain, kind)
    deciding = [
        name for name, strategy in zip(facts.strategies, chain, strict=True) if strategy.traits.decides
    ]
    if not deciding and SAID_ALOUD not in facts.strategies:
        yield Problem(
            f"{_names(facts.strategies)} only guards: a lock is no memory of what was applied",
            "add one that decides, such as unique_key; or none, if effects may happen twice",
            "strategies",
        )
    doubles = sorted({name for name in facts.strategies if facts.strategies.count(name) > 1})
    if doubles:
        yield Problem(f"{_names(doubles)} stands in the list twice", "keep one", "strategies")
    comparing = [
        name
        for name, strategy in zip(facts.strategies, chain, strict=True)
        if key_fingerprints.TABLE.name in {table.name for table in strategy.tables(MetaData())}
    ]
    if len(comparing) > 1:
        yield Problem(
            f"{_names(comparing)} keep the fingerprint of a key's last message in the same row",
            "write `fingerprint` for one of them: it compares the whole message",
            "strategies",
        )
    orders = any(strategy.traits.promises_order for strategy in chain)
    if len(deciding) > 1 and orders and identity_is_key(facts):
        yield Problem(
            "identity is the key alone, so every later message of a key would count as a duplicate of its first",
            "declare version: body.…, or identity: with what tells two messages of one key apart",
            "identity" if facts.identity else "strategies",
        )


def check_breakers(facts: ConsumerFacts, rules: Iterable[BreakerRule]) -> Iterable[Problem]:
    """Yield what keeps breakers from opening or from acting."""
    for rule in rules:
        where = f"breakers.{rule.kind.value}"
        if rule.action is BreakerAction.PAUSE and not facts.dialect:
            yield Problem(
                "a breaker pauses a consumer through the app's database, and there is none",
                "write action: slow or action: warn, or add database:",
                f"{where}.action",
            )
        if rule.kind is BreakerKind.DUPLICATES and SAID_ALOUD in facts.strategies:
            yield Problem(
                "this breaker never opens: strategy none knows no duplicates",
                "write strategies: [unique_key], or leave the breaker out",
                where,
                Severity.WARNING,
            )


def check_concurrency(facts: ConsumerFacts, rule: ConcurrencyRule | None) -> Iterable[Problem]:
    """Yield why a limit by value cannot be kept, or limits nothing."""
    if rule is None:
        return
    try:
        compile_expression(rule.by)
    except ValueError as error:
        yield Problem(f"`by` cannot be used: {error}", "write one like body.merchant", "concurrency.by")
        return
    if is_constant(rule.by):
        yield Problem(
            f"{rule.by} has the same value for every message, so the limit would hold for all together",
            "write an expression of the body or the headers; for all together lower workers: or batch:",
            "concurrency.by",
        )
    if rule.limit >= facts.in_flight:
        yield Problem(
            f"no more than {facts.in_flight} messages are received at once, so a limit of {rule.limit} limits nothing",
            "write a smaller limit, or raise in_flight:",
            "concurrency.limit",
            Severity.WARNING,
        )


def check_batch(
    facts: ConsumerFacts, settled: ConsumerSettings, handler: BoundHandler | None
) -> Iterable[Problem]:
    """Yield why messages cannot wait for a batch or be grouped, or why a batch never fills."""
    rule, limit = settled.batch, settled.batch_limit
    if rule is None:
        return
    where = "batch.within" if rule.within else "batch.by"
    if facts.effects is Effects.EXTERNAL or not facts.dialect:
        yield Problem(
            "external effects have no batches: each message runs on its own",
            f"write effects: database, or leave {where} out",
            where,
        )
    elif handler is not None and not handler.is_batch:
        yield Problem(
            f"the handler {handler.name} takes one message at a time, so it gets no batch",
            f"write its first parameter as orders: Batch[…], or leave {where} out",
            where,
        )
    if rule.by:
        yield from _group(rule.by)
    if rule.within:
        yield from _fill(facts, settled, rule.within, limit)
    same = settled.concurrency is not None and settled.concurrency.by == rule.by
    if settled.concurrency is not None and same and settled.concurrency.limit < limit:
        yield Problem(
            f"concurrency: lets {settled.concurrency.limit} messages of a value run at once, so a batch never has {limit}",
            f"write batch: {{limit: {settled.concurrency.limit}}}, or a larger limit for concurrency:",
            "batch.limit",
            Severity.WARNING,
        )


def _group(by: str) -> Iterable[Problem]:
    try:
        compile_expression(by)
    except ValueError as error:
        yield Problem(f"`by` cannot be used: {error}", "write one like body.tenant", "batch.by")
        return
    if is_constant(by):
        yield Problem(
            f"{by} has the same value for every message, so all are of one group",
            "write an expression of the body or the headers, or leave batch.by out",
            "batch.by",
        )


def _fill(facts: ConsumerFacts, settled: ConsumerSettings, within: float, limit: int) -> Iterable[Problem]:
    if within > _LONGEST_FILL:
        yield Problem(
            f"messages would wait {_time(within)} for others; brokers take back what is not acknowledged, and a reload waits, too",
            f"write at most {_time(_LONGEST_FILL)}",
            "batch.within",
        )
    if facts.in_flight < limit:
        yield Problem(
            f"no more than {facts.in_flight} messages are received at once, so a batch never has {limit}",
            f"write in_flight: {limit} or more, or batch: {{limit: {facts.in_flight}}}",
            "batch.limit",
        )
    elif facts.in_flight < limit * facts.workers:
        yield Problem(
            f"in_flight: {facts.in_flight} is less than a batch of {limit} for each of {facts.workers} workers",
            f"write in_flight: {limit * facts.workers} or more",
            "in_flight",
            Severity.WARNING,
        )
    rate = settled.rate
    at_once = limit if rate is None else int(burst_of(rate.limit, rate.burst))
    if rate is not None and at_once < limit:
        yield Problem(
            f"the rate hands out {at_once} messages at once, so a batch never has {limit}",
            f"write rate: {{limit: {rate.text or rate.limit}, burst: {limit}}}, or batch: {{limit: {at_once}}}",
            "rate",
            Severity.WARNING,
        )


def check_rate(facts: ConsumerFacts, rate: RateRule | None, *, has_redis: bool) -> Iterable[Problem]:
    """Yield why a rate cannot be kept, or what waits too long for it."""
    if rate is None:
        return
    if rate.shared and not has_redis:
        yield Problem(
            "a shared rate is counted in the app's Redis, and there is none",
            'add redis: {url: "redis://…"}, or leave shared out',
            "rate",
        )
    most = int(_HELD_TOO_LONG * rate.limit)
    if most < 1:
        yield Problem(
            f"at {rate.text} a message waits {_time(1 / rate.limit)} for its turn, longer than brokers leave a message with a consumer",
            "write at least 6/h, or give the broker a longer time-out (RabbitMQ: consumer_timeout)",
            "rate",
            Severity.WARNING,
        )
    elif facts.in_flight > most:
        yield Problem(
            f"in_flight: {facts.in_flight} at {rate.text} are messages for {_time(facts.in_flight / rate.limit)}, longer "
            "than brokers leave a message with a consumer",
            f"leave in_flight out, or write at most {most}",
            "in_flight",
            Severity.WARNING,
        )


def _time(seconds: float) -> str:
    return format_duration(timedelta(seconds=round(seconds)))


def identity_is_key(facts: ConsumerFacts) -> bool:
    """Return whether two messages of a key always have the same identity."""
    return facts.identity == ("key",) or (not facts.identity and not facts.has_version)


def check_identity(facts: ConsumerFacts) -> Iterable[Problem]:
    """Yield why the identity does not distinguish messages."""
    if facts.identity and all(is_constant(part) for part in facts.identity):
        yield Problem(
            f"the identity [{', '.join(facts.identity)}] is the same for every message, so all but the first would "
            "count as its duplicates",
            "name what tells two messages apart, such as identity: [body.order_id, body.payment_no]",
            "identity",
        )


def _kinds(facts: ConsumerFacts, chain: Sequence[Strategy], kind: UnitKind) -> Iterable[Problem]:
    for index, (name, strategy) in enumerate(zip(facts.strategies, chain, strict=True)):
        if kind in strategy.traits.kinds:
            continue
        if kind is UnitKind.DIRECT:
            why = "effects are external" if facts.dialect else "the app has no database"
            advice = (
                "write effects: database, or a strategy for external effects such as two_phase"
                if facts.dialect
                else 'add database: {url: "sqlite:///app.db"}, or write [none] if effects may happen twice'
            )
        else:
            why, advice = "effects are in the database", "write effects: external, or another strategy"
        yield Problem(f"strategy {name} cannot work where {why}", advice, f"strategies[{index}]")


def check_effects(facts: ConsumerFacts) -> Iterable[Problem]:
    """Yield the conflicts between the effects and the app."""
    if facts.effects is Effects.DATABASE and not facts.dialect:
        yield Problem(
            "effects: database, but the app has no database",
            'add database: {url: "sqlite:///app.db"}, or write effects: external',
            "effects",
        )


def check_hold(
    facts: ConsumerFacts, hold_dead: int | None = None, *, sharded: bool = False
) -> Iterable[Problem]:
    """Yield why keys cannot be held, by retries or by dead letters."""
    if hold_dead is not None:
        yield from _check_hold_dead(facts, sharded=sharded)
    elif facts.hold_key and (facts.effects is Effects.EXTERNAL or not facts.dialect):
        yield Problem(
            "on_retry: hold_key parks messages in the handler's database transaction, and this consumer has none",
            "write effects: database, or leave on_retry out",
            "on_retry",
        )


def _check_hold_dead(facts: ConsumerFacts, *, sharded: bool) -> Iterable[Problem]:
    where = "on_dead"
    if facts.effects is Effects.EXTERNAL or not facts.dialect:
        yield Problem(
            "on_dead: hold_key lets later messages wait in the handler's database transaction, and this consumer has none",
            "write effects: database, or leave hold_key out",
            where,
        )
    elif not facts.hold_key:
        yield Problem(
            "on_dead: hold_key keeps the order of a key after a dead letter, and on_retry: go_on gives it up before",
            "write on_retry: hold_key, or leave on_retry out",
            where,
        )
    if facts.instance:
        yield Problem(
            "on_dead: hold_key is not possible with mode: broadcast, whose dead letters lie in the ledger without holding keys",
            "leave hold_key out",
            where,
        )
    if sharded:
        yield Problem(
            "on_dead: hold_key is not possible with several shards: its dead letters are looked for in one database",
            "leave hold_key out; on_retry: hold_key is possible",
            where,
        )


def check_isolation(facts: ConsumerFacts) -> Iterable[Problem]:
    """Yield why a call cannot have a transaction of its own."""
    if facts.isolate and (facts.effects is Effects.EXTERNAL or not facts.dialect):
        yield Problem(
            "isolate: true gives each call a database transaction of its own, and this consumer has none",
            "write effects: database, or leave isolate out",
            "isolate",
        )


def check_times(facts: ConsumerFacts) -> Iterable[Problem]:
    """Yield durations that contradict each other."""
    if facts.keep < facts.retry_horizon:
        yield Problem(
            f"records are kept for {format_duration(facts.keep)}, but retries can take "
            f"{format_duration(facts.retry_horizon)}: a late retry of an applied message would take effect again",
            f"write keep: longer than {format_duration(facts.retry_horizon)}, or fewer or shorter retries",
            "keep",
        )
    if facts.soft_limit and facts.hard_limit and facts.soft_limit >= facts.hard_limit:
        yield Problem(
            f"the soft limit {format_duration(facts.soft_limit)} is not below "
            f"the hard limit {format_duration(facts.hard_limit)}",
            "leave the soft one time to roll back before the process ends",
            "limits.soft",
        )
    if facts.soft_limit and facts.effects is Effects.EXTERNAL and not facts.is_async:
        yield Problem(
            "limits: soft ends no handler here: a function with external effects cannot be interrupted or rolled back, "
            "so the limit is only logged",
            "write limits: {hard: …}, or make the handler `async def`",
            "limits.soft",
            Severity.WARNING,
        )
    if facts.in_flight < facts.workers:
        yield Problem(
            f"in_flight: {facts.in_flight} leaves some of {facts.workers} workers without a message",
            f"write in_flight: {facts.workers} or more",
            "in_flight",
            Severity.WARNING,
        )


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)


def check_broadcast(
    facts: ConsumerFacts,
    chain: Sequence[Strategy],
    adapter: Adapter | None,
    *,
    sharded: bool,
) -> Iterable[Problem]:
    """Yield why a consumer cannot be broadcast to.

    Args:
        facts: about the consumer; of others nothing is checked.
        chain: its strategies.
        adapter: of its broker, if it could be built.
        sharded: the app has several databases.
    """
    if not facts.instance:
        return
    if not _INSTANCE.fullmatch(facts.instance):
        yield Problem(
            f"{facts.instance[:80]!r} cannot be the name of an instance",
            "use letters, digits, `.`, _ and -, beginning with a letter or digit, 63 at most, such as the host's name: "
            'instance: "${HOSTNAME}"',
            "instance",
        )
    if adapter is not None and not adapter.capabilities.broadcast:
        yield Problem(
            f"mode: broadcast does not work on broker {facts.broker}: through this driver members of a group always share its "
            "messages",
            "use rocketmq://, or run each instance as an app of its own: with its own app: and group:",
            "mode",
        )
    if not facts.dialect:
        yield Problem(
            "mode: broadcast keeps in the app's database how far each instance has read, and there is none",
            'add database: {url: "sqlite:///app.db"}',
            "mode",
        )
    elif sharded:
        yield Problem(
            "mode: broadcast does not work with shards: an instance has one position, and retries beside it",
            "put this consumer into an app with one database",
            "mode",
        )
    for index, (name, strategy) in enumerate(zip(facts.strategies, chain, strict=False)):
        yield from _shared(f"strategies[{index}]", name, strategy)


def _shared(where: str, name: str, strategy: Strategy) -> Iterable[Problem]:
    """Yield by what a strategy decides that all instances share: the first one would take the message from all others."""
    advice = "write a strategy whose records are in the ledger for each instance: unique_key or tiered without a table"
    if columns := ", ".join(strategy.owns()):
        why = f"{name} decides by {columns}, which all instances share"
    elif strategy.knows_elsewhere:
        why = f"{name} also looks at records of another deduplicator, which all instances share"
    elif not strategy.traits.per_consumer:
        why = f"{name} decides by what all instances may share"
    else:
        return
    yield Problem(
        f"{why}: with mode: broadcast the first one to apply a message would make it a duplicate for all others",
        advice,
        where,
    )
