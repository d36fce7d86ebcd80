"""Builds what is around handlers: middlewares, the function for what has finally failed, and tracing.

OpenTelemetry is imported only where the app asks for it.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path as Folder
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from oncemq.common.clock import Clock
from oncemq.common.durations import format_duration
from oncemq.common.problems import Problem
from oncemq.common.redaction import Redactor
from oncemq.config.build.importing import import_object
from oncemq.config.build.reading.body_checks import TopicBodies, accepted_schemas
from oncemq.config.build.shared_parts import Reporter
from oncemq.config.model.app_model import AppModel
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.config.model.fields import WrongValue
from oncemq.config.source.tree import Path
from oncemq.contracts.adapter import Adapter
from oncemq.contracts.final_failure import FinalFailure
from oncemq.contracts.publisher import Publisher, Publishers
from oncemq.contracts.strategy import Strategy
from oncemq.contracts.unit import Item, Run
from oncemq.engine.base.answers import Answers
from oncemq.engine.base.asked_delay import AskedDelay
from oncemq.engine.base.expiry import Expiry
from oncemq.engine.base.final_failures import FinalGuard
from oncemq.errors import ConfigError, MissingExtra, OnceMQError
from oncemq.handler.binding import BoundHandler, bind
from oncemq.handler.middlewares import AfterCommit, Middleware, doubts, middleware_of
from oncemq.handler.signature import code_of
from oncemq.handler.upcasting import Upcast, Upcasts
from oncemq.message.body_version import BodyVersion
from oncemq.message.envelope import Message
from oncemq.message.expressions import compile_expression
from oncemq.schemas.registry import Registry

if TYPE_CHECKING:
    from oncemq.observe.otel.tracing import Tracing

_SYSTEMS: Final = {"amqp": "rabbitmq", "rocketmq": "rocketmq", "kafka": "kafka"}
"""OpenTelemetry's names of brokers, by the beginning of a URL's scheme."""


def build_tracing(model: AppModel, report: Reporter) -> "Tracing | None":
    """Return the app's tracing; None if it wants none, or OpenTelemetry is not installed, which is reported."""
    if model.tracing is None:
        return None
    try:
        from oncemq.observe.otel.tracing import Tracing  # noqa: PLC0415 - optional
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("opentelemetry"):
            raise
        report.error(("tracing",), MissingExtra('tracing needs OpenTelemetry: pip install "oncemq[otel]"'))
        return None
    return Tracing(model.tracing.sample, keys=model.tracing.keys)


def messaging_system(scheme: str) -> str:
    """Return what OpenTelemetry calls the broker with this URL scheme."""
    return next((name for start, name in _SYSTEMS.items() if scheme.startswith(start)), scheme)


def with_spans(
    handler: BoundHandler,
    settled: ConsumerSettings,
    tracing: "Tracing | None",
    scheme: str,
    redact: Redactor,
) -> BoundHandler:
    """Return the handler with spans around its calls; unchanged without tracing."""
    if tracing is None:
        return handler
    from oncemq.observe.otel.tracing import TracedConsumer  # noqa: PLC0415 - optional

    traced = TracedConsumer(
        settled.name,
        messaging_system(scheme),
        settled.topic,
        settled.group,
        tuple(choice.name for choice in settled.strategies),
        settled.unit_time.total_seconds() if settled.transactional else None,
        redact,
    )
    return tracing.traced(handler, traced)


def build_middlewares(
    declared: Sequence[Any], path: Path, folder: Folder, report: Reporter, around: Sequence[Middleware] = ()
) -> tuple[Middleware, ...]:
    """Return the middlewares around `around`, and those declared at `path`; what is unusable is reported.

    Args:
        declared: `module:Class`, a class, or an object.
        path: of their list.
        folder: the folder of the app's file.
        report: receives problems.
        around: those of the app, if `declared` are a consumer's.
    """
    made, objects = list(around), set[int]()
    for index, wanted in enumerate(declared):
        here = (*path, index)
        name = _name_of(wanted)
        try:
            found = import_object(wanted, folder) if isinstance(wanted, str) else wanted
            middleware = middleware_of(found, name)
        except (WrongValue, ConfigError) as error:
            report.error(here, error)
            continue
        own = not isinstance(wanted, str | type)
        twice = id(wanted) in objects if own else any(other.name == name for other in made)
        if twice:
            report.at(here, f"middleware {name} is there twice", "leave one of them out")
        for problem in doubts(found, name):
            report.note(here, problem)
        objects.add(id(wanted))
        made.append(middleware)
    return tuple(made)


def _name_of(wanted: Any) -> str:
    if isinstance(wanted, str):
        return str(wanted)
    kind = wanted if isinstance(wanted, type) else type(wanted)
    return f"{kind.__module__}:{kind.__qualname__}"


def guard_of(settled: ConsumerSettings) -> tuple[Strategy, ...]:
    """Return the chain's step that keeps what failed for good from running again."""
    return (FinalGuard(),) if settled.on_dead is not None else ()


def expiry_of(settled: ConsumerSettings, clock: Clock, report: Reporter) -> tuple[Strategy, ...]:
    """Return the chain's last step where messages expire; an unusable deadline is reported."""
    if settled.expires_after is None and settled.deadline is None:
        return ()
    deadline = None
    if settled.deadline is not None:
        try:
            deadline = compile_expression(settled.deadline)
        except ValueError as error:
            report.at(settled.path("expires"), f"the deadline is not usable: {error}")
    return (Expiry(settled.expires_after, deadline, bury=settled.bury_expired, clock=clock),)


def asked_delay_of(settled: ConsumerSettings, clock: Clock, report: Reporter) -> tuple[Strategy, ...]:
    """Return the step in which messages wait as their producers ask; what cannot be kept is reported."""
    if not settled.delay_by:
        return ()
    try:
        find = compile_expression(settled.delay_by)
    except ValueError as error:
        report.at(settled.path("asked_delay"), f"the delay is not usable: {error}")
        return ()
    if settled.delay_limit >= settled.keep:
        report.at(
            settled.path("asked_delay.limit"),
            f"records are kept for {format_duration(settled.keep)}: a copy of a message that waited longer could take effect "
            "again – write a shorter limit, or a longer keep:",
        )
    return (AskedDelay(find, settled.delay_limit, clock),)


def after_commit_of(
    settled: ConsumerSettings,
    middlewares: Sequence[Middleware],
    chains: Sequence[Sequence[Strategy]],
    handler: BoundHandler | None,
    adapters: Mapping[str, Adapter],
    report: Reporter,
) -> tuple[Strategy, ...]:
    """Return the steps that tell middlewares of commits and answer requests, if there are such; unfit ones are reported."""
    steps: list[Strategy] = []
    if settled.reply:
        unfit = next(filter(None, (_no_reply(settled, chain, handler, adapters) for chain in chains)), None)
        if unfit is not None:
            report.at(settled.path("reply"), f"{settled.name}: {unfit[0]}", unfit[1])
        steps.append(Answers())
    if any(middleware.after_commit is not None for middleware in middlewares):
        steps.append(AfterCommit(settled.name, tuple(middlewares)))
    return tuple(steps)


def _no_reply(
    settled: ConsumerSettings,
    chain: Sequence[Strategy],
    handler: BoundHandler | None,
    adapters: Mapping[str, Adapter],
) -> tuple[str, str] | None:
    """Return why requests could not be answered, copies with the same answer, and what to write; None if they can."""
    adapter = adapters.get(settled.broker)
    if adapter is not None and not adapter.capabilities.replies:
        return (
            f"broker {settled.broker!r} cannot answer requests",
            "leave reply out; RabbitMQ (amqp://) and RocketMQ (rocketmq://) can",
        )
    if not settled.transactional or [each.keeps_result for each in chain if each.traits.decides] != [True]:
        return (
            "a copy of a request gets the stored result as its answer, and this consumer stores none, or another strategy decides, too",
            "write effects: database and strategies: [unique_key: {result: true}]",
        )
    if any(strategy.knows_elsewhere for strategy in chain):
        return "also_seen_in knows no results", "leave reply out until also_seen_in is removed"
    if settled.hold_key:
        by, advice = (
            ("on_retry", "write on_retry: go_on")
            if settled.hold_dead is None
            else ("on_dead", "leave hold_key out")
        )
        return f"a message that {by}: hold_key keeps in the ledger is not answered", advice
    if handler is not None and handler.is_batch:
        return "a handler for batches has no result for each message", "write a handler for one message"
    return None


def _unfit(settled: ConsumerSettings, chain: Sequence[Strategy]) -> tuple[str, str] | None:
    """Return why `on_dead` and an applied message would not exclude each other, and what to write; None if they do."""
    if not settled.transactional or not any(strategy.records_identity for strategy in chain):
        return (
            f"{settled.name}: on_dead shares the record by which unique_key and tiered know an applied message, and this consumer has none",
            "write effects: database and strategies: [unique_key, …], without `table`",
        )
    if any(strategy.knows_elsewhere for strategy in chain):
        return (
            f"{settled.name}: on_dead looks for a message's record in the ledger alone, and could undo what also_seen_in knows as applied",
            "leave on_dead out until also_seen_in is removed",
        )
    return None


def bind_on_dead(
    settled: ConsumerSettings,
    chains: Sequence[Sequence[Strategy]],
    find: Callable[[Any], Any],
    publishers: Publishers,
    report: Reporter,
    upcast: Upcast | None = None,
) -> BoundHandler | None:
    """Return the consumer's `on_dead` function; None without one, or if it is not usable, which is reported.

    Args:
        settled: the consumer's settings.
        chains: its strategies, and those of its routes.
        find: returns the function that a name stands for; None when it has reported why there is none.
        publishers: makes the Publisher that it may request.
        report: receives problems.
        upcast: returns the body that it gets, as the handler does; None = as it came.
    """
    if settled.on_dead is None:
        return None
    path = settled.path("on_dead")
    unfit = next(filter(None, (_unfit(settled, chain) for chain in chains)), None)
    if unfit is not None:
        report.at(path, *unfit)
        return None
    function = find(settled.on_dead)
    if function is None:
        return None
    try:
        bound = bind(
            function,
            name=settled.on_dead
            if isinstance(settled.on_dead, str)
            else getattr(function, "__name__", "on_dead"),
            provided={Publisher: publishers.of_item, FinalFailure: _failure},
            shared={Publisher: publishers.of_run},
            effects=settled.effects,
            body_format=settled.format,
            upcast=upcast,
        )
    except OnceMQError as error:
        report.error(path, error)
        return None
    if bound.is_async or bound.is_batch:
        report.at(
            path,
            f"{settled.name}: {bound.name} is {'an async function' if bound.is_async else 'for batches'}: on_dead is called for "
            "one message, and waits for the function",
            "write a plain function: def compensate(order: OrderPaid, failure: FinalFailure, session: Session)",
        )
        return None
    return bound


def build_upcasts(
    settled: ConsumerSettings,
    folder: Folder,
    report: Reporter,
    registry: Registry,
    decode: Callable[[Message], Any],
    bodies: Mapping[str, TopicBodies] = MappingProxyType({}),
) -> Upcasts | None:
    """Return what brings bodies to the handler's version; None without `accepts`, or if it is not usable, which is reported."""
    accepts = settled.accepts
    if accepts is None:
        return None
    path, steps = settled.path("accepts"), {}
    for version, named in accepts.upcasters.items():
        try:
            found = import_object(named, folder) if isinstance(named, str) else named
        except WrongValue as error:
            report.error(path, error)
            continue
        if not _returns_a_body(found):
            report.at(
                path,
                f"the upcaster of version {version}, {named!r}, is no function",
                "write def to_v2(body: dict) -> dict",
            )
            continue
        steps[version] = found
    read = _version_of(settled, bodies, report)
    schemas = accepted_schemas(settled, registry, report, bodies)
    if len(steps) < len(accepts.upcasters) or read is None:
        return None
    return Upcasts(read, accepts.versions, steps, decode, settled.topic, schemas)


def _version_of(
    settled: ConsumerSettings, bodies: Mapping[str, TopicBodies], report: Reporter
) -> BodyVersion | None:
    """Return what reads the versions of bodies, by the consumer's `accepts` or its topic; None if neither says it."""
    accepts, path = settled.accepts, settled.path("accepts")
    topic = bodies.get(settled.topic)
    if accepts is None:
        return None
    if settled.body_version is not None:
        if accepts.version is not None or accepts.without is not None:
            report.at(
                path,
                f"{settled.name}: topic {settled.topic!r} says by body_version what version a body has",
                "leave `version` and `without` out here",
            )
        return None if topic is None else topic.version
    if accepts.version is None:
        report.at(
            path,
            f"{settled.name}: `accepts` does not say where a message has its version",
            "add version: headers.schema-version, or body_version: at the topic",
        )
        return None
    known = f"accepted are {', '.join(map(str, accepts.versions))}"
    return BodyVersion(settled.topic, accepts.version, accepts.without, known=known)


def _returns_a_body(function: Any) -> bool:
    """Return whether a call returns its result at once, which one of a coroutine function or a generator does not."""
    if not callable(function):
        return False
    code = code_of(function)
    deferred = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return not any(is_deferred(code) for is_deferred in deferred)


def require_payload(handler: BoundHandler, upcast: Upcast | None) -> BoundHandler:
    """Return the handler.

    Raises:
        ConfigError: the consumer accepts some versions, but the handler takes no payload: then no version would be read.
    """
    if upcast is not None and not handler.takes_payload:
        text = f"handler {handler.name}: it takes no payload, so `accepts` would refuse no version"
        raise ConfigError(
            [Problem(text, "add a parameter for the body, like order: dict, or leave accepts out")]
        )
    return handler


def _failure(run: Run, item: Item) -> FinalFailure:  # noqa: ARG001
    failure: FinalFailure = run.unit.notes[FinalFailure]
    return failure
