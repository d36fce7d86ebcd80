"""OpenTelemetry: spans of published and processed messages, in the trace that their headers carry (extra `otel`).

A message is sampled before a span is made: its producer's decision counts, and without one the app's share. The context of a
message is current while its handler runs, and only then; its span ends when the message has its verdict.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from hashlib import sha256
from threading import Lock
from time import monotonic, time_ns
from typing import Any, Final
from zlib import crc32

from opentelemetry import propagate, trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from oncemq.common.error_text import describe, is_a, name_of
from oncemq.common.redaction import Redactor
from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import Culprits, Outcome, Verdict
from oncemq.errors import Signal
from oncemq.handler.binding import BoundHandler
from oncemq.message.envelope import Delivery, Message
from oncemq.observe.events import Observer
from oncemq.observe.fields import handler_trace
from oncemq.observe.otel.published import MOST_LINKS, TracedTopic, sampled_flag, span_context

_CRCS: Final = 2**32
_SECOND: Final = 1_000_000_000
_LONGEST: Final = 600.0
_STAGES: Final = {"loaded": "load", "handled": "handle", "saved": "save", "committed": "commit"}
"""Names of the stages that end at these points of a unit."""
_MOST_REMEMBERED: Final = 4096
"""Applied messages whose trace a process remembers for their duplicates."""
_FAILURES: Final = frozenset({Outcome.RETRY, Outcome.REJECT, Outcome.CONFLICT})


@dataclass(frozen=True, slots=True)
class TracedConsumer:
    """What the spans of a consumer say.

    Args:
        name: the consumer's name.
        system: the kind of its broker: `rabbitmq`, `rocketmq` …
        topic: the topic's name.
        group: the consumer group.
        strategies: the chain's names.
        unit_time: seconds; a unit began this long before its deadline. None where messages share no transaction.
        redact: masks secrets in errors.
    """

    name: str
    system: str
    topic: str
    group: str
    strategies: tuple[str, ...]
    unit_time: float | None
    redact: Redactor

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of its spans, named by OpenTelemetry's conventions for messaging."""
        return {
            "messaging.system": self.system,
            "messaging.operation.type": "process",
            "messaging.operation.name": "process",
            "messaging.destination.name": self.topic,
            "messaging.consumer.group.name": self.group,
            "oncemq.consumer": self.name,
            "oncemq.strategy": ",".join(self.strategies),
        }


class _UnitTrace:
    """The unit that a worker is at, if one of its messages is sampled."""

    __slots__ = ("links", "span", "stages", "unit")

    def __init__(self) -> None:
        self.unit: Unit | None = None
        self.span: Span | None = None
        self.links = 0
        self.stages: list[tuple[str, int]] = []


# A worker is a thread, or a task of an event loop that it shares with others.
_worker: ContextVar[_UnitTrace | None] = ContextVar("oncemq_unit_trace", default=None)


def _of_worker() -> _UnitTrace:
    """Return the trace of the worker that calls."""
    found = _worker.get()
    if found is None:
        found = _UnitTrace()
        _worker.set(found)
    return found


@dataclass(slots=True, eq=False)
class _Processing:
    """A message's span, the context in which its handler runs, and its consumer."""

    span: Span
    context: Context
    consumer: TracedConsumer
    calls: int = field(default=0)


@contextmanager
def _current(context: Context) -> Iterator[None]:
    token = attach(context)
    try:
        yield
    finally:
        detach(token)


class _Applied:
    """The spans that have applied messages lately; of sampled messages only."""

    def __init__(self) -> None:
        self._mutex = Lock()
        self._spans: dict[tuple[str, str], trace.SpanContext] = {}

    def note(self, consumer: str, delivery: Delivery, span: Span) -> None:
        """Remember a span, and forget the oldest one above the limit."""
        if delivery.envelope is None:
            return
        with self._mutex:
            self._spans[consumer, delivery.envelope.identity] = span.get_span_context()
            if len(self._spans) > _MOST_REMEMBERED:
                del self._spans[next(iter(self._spans))]

    def by(self, consumer: str, delivery: Delivery) -> trace.SpanContext | None:
        """Return the span that has applied a message with the same identity; None if it is not known."""
        if delivery.envelope is None:
            return None
        with self._mutex:
            return self._spans.get((consumer, delivery.envelope.identity))


class Tracing(Observer):
    """Makes the spans of one process.

    Args:
        share: of the messages without a producer's decision, from 0 to 1.
        keys: spans show business keys; otherwise a hash of them.
    """

    def __init__(self, share: float = 1.0, *, keys: bool = False) -> None:
        self._share = share
        self._keys = keys
        self._tracer = trace.get_tracer("oncemq")
        self._open: dict[Delivery, _Processing] = {}
        self._consumers: dict[str, TracedConsumer] = {}
        self._applied = _Applied()

    def publishing(self, system: str, topic: str) -> TracedTopic:
        """Return what traces the messages that are published to a topic.

        Args:
            system: the kind of the topic's broker.
            topic: the topic's name.
        """
        return TracedTopic(self._tracer, system, topic)

    def traced(self, handler: BoundHandler, consumer: TracedConsumer) -> BoundHandler:
        """Return the handler with spans around its calls."""
        self._consumers[consumer.name] = consumer
        if handler.call_batch is not None:
            batch = self._batch(handler.call_batch, consumer, is_async=handler.is_async)
            return replace(handler, call_batch=batch, call=lambda run, item: batch(run, [item]))
        call = handler.call
        if handler.is_async:

            async def traced_async(run: Run, item: Item) -> Any:
                processing = self._begin(consumer, run, item.delivery)
                if processing is None:
                    return await call(run, item)
                with _current(processing.context):
                    return await call(run, item)

            return replace(handler, call=traced_async)

        def traced_sync(run: Run, item: Item) -> Any:
            processing = self._begin(consumer, run, item.delivery)
            if processing is None:
                return call(run, item)
            with _current(processing.context):
                return call(run, item)

        return replace(handler, call=traced_sync)

    def point(self, name: str) -> None:
        """Note the end of a stage of the calling worker's unit."""
        if name in _STAGES:
            _of_worker().stages.append((name, time_ns()))

    def judged(self, consumer: str, verdicts: Sequence[tuple[Delivery, Verdict]]) -> None:
        """End the spans of messages that have their verdict, and the span of their unit."""
        traced = self._consumers.get(consumer)
        if traced is None:
            return
        here, size = _of_worker(), len(verdicts)
        for delivery, verdict in verdicts:
            if verdict.outcome is Outcome.RETURNED:
                self._end_returned(delivery)
                continue
            processing = self._open.pop(delivery, None)
            if processing is None and self._sampled(delivery.message):
                # Its handler has not run.
                processing = self._span(traced, delivery, None)
            if processing is not None:
                self._end(processing, delivery, verdict, size)
        self._end_unit(size)
        here.unit, here.span, here.links = None, None, 0
        here.stages.clear()

    def _sampled(self, message: Message) -> bool:
        if (decided := sampled_flag(message.headers)) is not None:
            return decided
        # By the message, not by chance: its duplicates and retries are decided alike, also after its handler has run.
        mark = message.message_id.encode(errors="replace") if message.message_id else message.body
        return crc32(mark) < self._share * _CRCS

    def _begin(self, consumer: TracedConsumer, run: Run, delivery: Delivery) -> _Processing | None:
        processing = self._open.get(delivery)
        if processing is None:
            if not self._sampled(delivery.message):
                return None
            processing = self._open[delivery] = self._span(consumer, delivery, run.unit)
        processing.calls += 1
        if processing.calls > 1:
            processing.span.add_event("run again", {"oncemq.call": processing.calls})
        return processing

    def _span(self, consumer: TracedConsumer, delivery: Delivery, unit: Unit | None) -> _Processing:
        parent = propagate.extract(delivery.message.headers, context=Context())
        of_unit = self._unit_span(consumer, unit) if unit is not None else None
        links = [] if of_unit is None else [Link(of_unit.get_span_context())]
        span = self._tracer.start_span(
            f"process {consumer.topic}",
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes=self._attributes(consumer, delivery),
            links=links,
        )
        here = _of_worker()
        if of_unit is not None and here.links < MOST_LINKS:
            here.links += 1
            of_unit.add_link(span.get_span_context())
        return _Processing(span, trace.set_span_in_context(span, parent), consumer)

    def _attributes(self, consumer: TracedConsumer, delivery: Delivery) -> dict[str, Any]:
        message = delivery.message
        found = {**consumer.attributes(), "oncemq.attempt": message.attempt}
        if message.message_id is not None:
            found["messaging.message.id"] = message.message_id
        if delivery.envelope is not None:
            if self._keys:
                found["oncemq.key"] = delivery.key
            found["oncemq.key_hash"] = sha256(delivery.key.encode(errors="replace")).hexdigest()[:16]
        return found

    def _unit_span(self, consumer: TracedConsumer, unit: Unit) -> Span | None:
        """Return the span of a transactional unit; None for messages that run alone outside of transactions."""
        here = _of_worker()
        if here.unit is not unit:
            if consumer.unit_time is None:
                return None
            ago = monotonic() - (unit.deadline - consumer.unit_time)
            now, ago = time_ns(), ago if 0 < ago < _LONGEST else 0.0  # the engine's clock may be a test's
            start = min([now - int(ago * _SECOND), *(ended for _, ended in here.stages)])
            here.unit = unit
            here.span = self._tracer.start_span(
                f"unit {consumer.topic}",
                context=Context(),
                start_time=start,
                attributes={**consumer.attributes(), "oncemq.unit": unit.owner},
            )
        return here.span

    def _end_unit(self, size: int) -> None:
        here = _of_worker()
        if here.span is None:
            return
        context = trace.set_span_in_context(here.span, Context())
        began: int | None = getattr(here.span, "start_time", None)
        for name, ended in here.stages:
            if began is not None and ended >= began:
                self._tracer.start_span(_STAGES[name], context, start_time=began).end(ended)
            began = ended
        here.span.set_attribute("oncemq.unit.size", size)
        here.span.end()

    def _end_returned(self, delivery: Delivery) -> None:
        processing = self._open.pop(delivery, None)
        if processing is not None:
            processing.span.set_attribute("oncemq.outcome", Outcome.RETURNED.value)
            processing.span.end()

    def _end(self, processing: _Processing, delivery: Delivery, verdict: Verdict, size: int) -> None:
        span, outcome = processing.span, verdict.outcome
        span.set_attributes({"oncemq.outcome": outcome.value, "oncemq.unit.size": size})
        if outcome is Outcome.PROCEED:
            self._applied.note(processing.consumer.name, delivery, span)
        elif outcome is Outcome.DUPLICATE:
            self._note_first(processing.consumer.name, delivery, span, verdict.tier)
        if outcome in _FAILURES:
            reason = processing.consumer.redact(verdict.reason)
            span.set_status(Status(StatusCode.ERROR, reason))
            if verdict.error is not None and not is_a(verdict.error, Signal):
                self._note_error(span, verdict.error, processing.consumer.redact)
        elif verdict.reason:
            span.set_attribute("oncemq.reason", processing.consumer.redact(verdict.reason))
        span.end()

    def _note_first(self, consumer: str, delivery: Delivery, span: Span, tier: str) -> None:
        """Say on the span of a duplicate where it was found, and which trace applied its message, if it was here and lately."""
        if tier:
            span.set_attribute("oncemq.tier", tier)
        first = self._applied.by(consumer, delivery)
        if first is not None:
            span.set_attribute("oncemq.duplicate_of", f"{first.trace_id:032x}")
            span.add_link(first)

    def _note_error(self, span: Span, error: BaseException, redact: Redactor) -> None:
        """Record an error as the conventions say, with secrets masked as in logs."""
        found: Mapping[str, Any] = {
            "exception.type": name_of(error),
            "exception.message": redact(describe(error)),
            "exception.stacktrace": redact(handler_trace(error)),
        }
        span.set_attribute("error.type", name_of(error))
        span.add_event("exception", found)

    def _batch(
        self, call: Callable[[Run, list[Item]], Any], consumer: TracedConsumer, *, is_async: bool
    ) -> Callable[[Run, list[Item]], Any]:
        """Return a batch handler with one span for each call, which links to its messages."""

        async def traced_async(run: Run, items: list[Item]) -> Any:
            with self._batch_span(consumer, items):
                return await call(run, items)

        def traced_sync(run: Run, items: list[Item]) -> Any:
            with self._batch_span(consumer, items):
                return call(run, items)

        return traced_async if is_async else traced_sync

    @contextmanager
    def _batch_span(self, consumer: TracedConsumer, items: list[Item]) -> Iterator[None]:
        """Make a span for a call with these items current, if one of them is sampled."""
        contexts = [
            span_context(item.delivery.message.headers)
            for item in items
            if self._sampled(item.delivery.message)
        ]
        if not contexts:
            yield
            return
        links = [Link(context) for context in contexts[:MOST_LINKS] if context.is_valid]
        own = {**consumer.attributes(), "messaging.batch.message_count": len(items)}
        span = self._tracer.start_span(
            f"process {consumer.topic}", Context(), SpanKind.CONSUMER, attributes=own, links=links
        )
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield
            except Culprits:
                raise
            except BaseException as error:
                span.set_status(Status(StatusCode.ERROR, consumer.redact(describe(error))))
                self._note_error(span, error, consumer.redact)
                raise
