"""Builds the topics that handlers may publish to, and reports misspelt or misplaced names at a topic."""

from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from oncemq.common.clock import Clock
from oncemq.common.durations import LONGEST_DELAY
from oncemq.config.build.around_handlers import messaging_system
from oncemq.config.build.reading.body_checks import TopicBodies
from oncemq.config.build.reading.reader import build_decoder
from oncemq.config.build.shared_parts import Reporter, written
from oncemq.config.model.app_model import AppModel, Consumer, Topic
from oncemq.config.model.consumer_settings import DEFAULT_KEEP, ConsumerSettings
from oncemq.config.model.foreign_names import answer
from oncemq.config.model.validate import field_names
from oncemq.contracts.adapter import Adapter
from oncemq.contracts.broker_queries import PrioritizingAdapter
from oncemq.errors import OnceMQError
from oncemq.message.body_version import Check
from oncemq.message.claims.claim_check import MOST, OVER, ClaimCheck
from oncemq.message.claims.store import Store
from oncemq.message.decoding import Decoder
from oncemq.message.envelope import Message
from oncemq.message.outgoing import DelayBy, Delays, OutgoingTopic, TopicTrace, WhenUnroutable
from oncemq.message.reader import Reader

if TYPE_CHECKING:
    from oncemq.observe.otel.tracing import Tracing


def build_topics(
    model: AppModel,
    brokers: Mapping[str, str],
    folder: Path,
    report: Reporter,
    adapters: Mapping[str, Adapter],
    clock: Clock,
    tracing: "Tracing | None" = None,
    claims: Mapping[str, ClaimCheck] = MappingProxyType({}),
    bodies: Mapping[str, TopicBodies] = MappingProxyType({}),
) -> dict[str, OutgoingTopic]:
    """Return the topics by name; problems of a topic are reported, unless its consumers report them.

    Args:
        model: as declared.
        brokers: the broker's name of each topic, if known.
        folder: the folder of the app's file.
        report: receives problems.
        adapters: by the broker's name; they validate messages on publishing.
        clock: the time of messages that are published for later.
        tracing: writes the current trace into published messages; None = not traced.
        claims: where large bodies lie, by topic.
        bodies: what checks bodies against the version that they name, by topic.
    """
    consumed = {name for consumer in model.consumers.values() for name in consumer.topic_names}
    built = {}
    for name, topic in model.topics.items():
        if topic.unroutable == WhenUnroutable.DEAD_LETTER and model.database is None:
            path = ("topics", name, "unroutable")
            report.at(
                path, "without a database no message can be kept", "add database:, or write wait or drop"
            )
        broker = brokers.get(name)
        adapter = adapters.get(broker or "")
        limit = None if adapter is None else adapter.capabilities.max_headers
        delays = _delays(model, name, topic, adapter, clock, report)
        trace = None
        if tracing is not None and broker is not None:
            trace = tracing.publishing(messaging_system(model.brokers[broker].url.scheme), name)
        found = (
            None
            if broker is None
            else _topic(
                name,
                topic,
                broker,
                folder,
                report,
                consumed,
                limit,
                trace,
                delays,
                claims.get(name),
                bodies.get(name),
                adapter.highest_priority(name, written(topic.options))
                if isinstance(adapter, PrioritizingAdapter)
                else None,
            )
        )
        if found is not None:
            built[name] = found
    return built


def _topic(
    name: str,
    topic: Topic,
    broker: str,
    folder: Path,
    report: Reporter,
    consumed: Collection[str],
    max_headers: int | None,
    trace: TopicTrace | None,
    delays: Delays,
    claims: ClaimCheck | None,
    bodies: TopicBodies | None,
    highest: int | None,
) -> OutgoingTopic | None:
    body_format = topic.format or "json"
    try:
        decode = build_decoder(body_format, topic.schema_, folder, claims)
    except (ValueError, TypeError) as error:
        if name not in consumed:
            report.error(("topics", name), error)
        return None
    reader = None
    try:
        reader = _reader(name, topic, broker, decode, None if bodies is None else bodies.check)
    except ValueError as error:
        # A consumer may add the missing parts, and then uses its own expressions.
        if name not in consumed:
            report.error(("topics", name), error)
    if reader is None and bodies is not None:
        decode = _checked(decode, bodies.check)
    unroutable = WhenUnroutable(topic.unroutable or WhenUnroutable.WAIT)
    return OutgoingTopic(
        name,
        broker,
        written(topic.options),
        body_format,
        decode,
        reader,
        unroutable,
        max_headers,
        trace,
        delays,
        claims=claims,
        highest_priority=highest,
    )


def _checked(decode: Decoder, check: Check) -> Decoder:
    """Check the bodies of a topic that declares no key."""

    def decode_and_check(message: Message) -> Any:
        body = decode(message)
        check(message, body, message.keys[0] if message.keys else "")
        return body

    return decode_and_check


OpenStore = Callable[[str, Mapping[str, Any]], Store]
"""Opens the store at a URL, with options for its file system."""


def build_claims(
    model: AppModel,
    consumers: Sequence[ConsumerSettings],
    clock: Clock,
    report: Reporter,
    open_store: OpenStore,
) -> dict[str, ClaimCheck]:
    """Return where large bodies lie, by topic; a store that cannot be used is reported."""
    found = {}
    for name, topic in model.topics.items():
        declared = topic.claim_check
        if declared is None:
            continue
        path = ("topics", name, "claim_check")
        over, most = declared.over or OVER, declared.most or MOST
        if most < over:
            report.at((*path, "most"), "the largest body is smaller than those that stay in their messages")
        keeps = [consumer.keep for consumer in consumers if consumer.topic == name]
        keep = declared.keep or max(keeps, default=DEFAULT_KEEP)
        try:
            store = open_store(declared.store, written(declared.options or {}))
        except OnceMQError as error:
            report.error((*path, "store"), error)
        else:
            found[name] = ClaimCheck(store, over, most, keep, clock)
    return found


def _delays(
    model: AppModel, name: str, topic: Topic, adapter: Adapter | None, clock: Clock, report: Reporter
) -> Delays:
    """Return what holds this topic's messages back; a wish that cannot be fulfilled is reported."""
    exact = adapter is not None and adapter.capabilities.precise_delay
    path = ("topics", name, "delay_by")
    if topic.delay_by == DelayBy.OUTBOX and model.database is None:
        report.at(path, "without a database there is no outbox that keeps messages", "add database:")
    if topic.delay_by == DelayBy.BROKER and adapter is not None and not exact:
        report.at(
            path,
            "this broker has no exact timer: it would deliver delayed messages at steps of its own, or not in time",
            "write delay_by: outbox, with a database",
        )
    if topic.delay_by != DelayBy.BROKER and model.database is not None:
        return Delays(DelayBy.OUTBOX, clock=clock)
    if not exact or adapter is None:
        return Delays(clock=clock)
    return Delays(DelayBy.BROKER, adapter.capabilities.longest_delay or LONGEST_DELAY, clock)


def _reader(name: str, topic: Topic, broker: str, decode: Decoder, check: Check | None) -> Reader | None:
    if not topic.key:
        return None
    key = topic.key[0] if len(topic.key) == 1 else f"[{', '.join(topic.key)}]"
    identity = topic.identity or ()
    return Reader(
        broker, name, "", key=key, version=topic.version, identity=identity, decoder=decode, check=check
    )


_ALIKE = 0.75


def check_topic_names(name: str, topic: Topic, report: Reporter) -> None:
    """Report options of the topic `name` that the adapter does not know."""
    elsewhere = set(field_names(Consumer)) - set(field_names(Topic))
    for option in topic.options:
        path = ("topics", name, option)
        close = get_close_matches(option, field_names(Topic), n=1, cutoff=_ALIKE)
        foreign = answer(option, "topics")
        if option in elsewhere:
            report.at_key(
                path, f"{option!r} belongs to a consumer", "write it at the consumer, or below defaults:"
            )
        elif foreign:
            report.at_key(path, f"there is no {option!r} here", foreign)
        elif close:
            report.at_key(path, f"unknown name {option!r}", f"did you mean {close[0]!r}?")
