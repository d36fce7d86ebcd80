"""Tests of traces: which spans a message leaves, in which trace, and what stays out of them."""

import asyncio
import contextvars
import logging
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from oncemq import App, Batch, Publisher
from oncemq.common.redaction import Redactor
from oncemq.contracts.unit import Unit
from oncemq.contracts.verdict import PROCEED
from oncemq.errors import BrokerUnavailable
from oncemq.handler.binding import BoundHandler
from oncemq.message.envelope import Delivery, Message, OutgoingMessage
from oncemq.observe.otel.tracing import TracedConsumer, TracedTopic, Tracing
from oncemq.testing import TestApp
from suites.kit.conftest import Base, Effect

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SAMPLED = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "baggage": "tenant=acme"}
UNSAMPLED = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-00"}
EXPORTER = InMemorySpanExporter()


@pytest.fixture(autouse=True)
def _spans() -> Iterator[None]:
    """Collect the spans of each test; a tracer provider can be set only once in a process."""
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
        trace.set_tracer_provider(provider)
    EXPORTER.clear()
    yield
    EXPORTER.clear()


def spans(name: str) -> list[ReadableSpan]:
    """Return the finished spans of this name, in the order of their ends."""
    return [span for span in EXPORTER.get_finished_spans() if span.name == name]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return a span's attributes."""
    return dict(span.attributes or {})


def trace_of(span: ReadableSpan) -> str:
    """Return a span's trace id as headers write it."""
    assert span.context is not None
    return format(span.context.trace_id, "032x")


def started(handler: Any, *, sample: float = 1.0, second: Any = None, **options: Any) -> TestApp:
    """Return an app with one consumer of `orders`, and another one of `paid`."""
    app = App("shop", brokers={"main": "amqp://nowhere/"}, database="sqlite://", tracing={"sample": sample})
    for topic in ("orders", "paid"):
        app.topic(topic, key="body.key", identity=["body.id"], strategies=["unique_key"])
    app.consumer(topic="orders", name="take", retry={"attempts": 2}, **options)(handler)
    app.consumer(topic="paid", name="settle")(second or take)
    return TestApp(app, tables=Base.metadata)


def take(body: dict[str, Any], session: Session) -> None:
    """Write an effect."""
    session.add(Effect(text=body["id"]))


def pass_on(body: dict[str, Any], session: Session, publisher: Publisher) -> None:
    """Write an effect, and publish the next message."""
    session.add(Effect(text=body["id"]))
    publisher.publish("paid", body)


ORDER = {"id": "a", "key": "k"}


def test_a_trace_runs_from_the_producer_through_the_outbox_to_the_next_consumer() -> None:
    """Each span is the child of the one that caused it."""
    with started(pass_on) as app:
        app.publish("orders", ORDER, headers=SAMPLED)
    (first,), (published,), (second,) = spans("process orders"), spans("publish paid"), spans("process paid")
    assert {trace_of(span) for span in (first, published, second)} == {TRACE}
    assert first.parent is not None
    assert format(first.parent.span_id, "016x") == "00f067aa0ba902b7"
    assert published.parent == first.context
    assert second.parent is not None
    assert published.context is not None
    assert second.parent.span_id == published.context.span_id
    assert (first.kind, published.kind) == (trace.SpanKind.CONSUMER, trace.SpanKind.PRODUCER)


def test_a_sent_message_has_a_span_for_that_in_its_trace() -> None:
    """From the outbox: a child of the span that published it, when the broker has confirmed it."""
    with started(pass_on) as app:
        app.publish("orders", ORDER, headers=SAMPLED)
    (published,), (sent,) = spans("publish paid"), spans("send paid")
    assert published.context is not None
    assert sent.parent is not None
    assert (sent.parent.span_id, trace_of(sent)) == (published.context.span_id, TRACE)
    assert sent.kind is trace.SpanKind.CLIENT
    found = attributes(sent)
    assert (found["messaging.operation.type"], found["messaging.batch.message_count"]) == ("send", 1)
    assert sent.status.status_code is trace.StatusCode.UNSET


def _topic(system: str = "rabbitmq") -> TracedTopic:
    return Tracing().publishing(system, "paid")


def _headers(number: int, flags: str = "01") -> dict[str, str]:
    return {"traceparent": f"00-{TRACE}-{number + 1:016x}-{flags}"}


def test_messages_that_are_sent_together_have_one_span_that_links_to_theirs() -> None:
    """Of those that are sampled, at most 64."""
    messages = [
        OutgoingMessage(b"", headers=_headers(number, "00" if number == 1 else "01")) for number in range(80)
    ]
    _topic().sending(messages, lambda: [None] * 80)
    (sent,) = spans("send paid")
    assert sent.parent is None
    found = [link.context.span_id for link in sent.links]
    assert (found[:2], len(found)) == ([1, 3], 64)
    assert attributes(sent)["messaging.batch.message_count"] == 80


@pytest.mark.parametrize("headers", [{}, {"traceparent": "no trace"}, _headers(1, "00")])
def test_messages_that_are_not_sampled_are_sent_without_a_span(headers: dict[str, str]) -> None:
    """Their number does not matter."""
    _topic().sending([OutgoingMessage(b"", headers=headers)] * 2, lambda: [None, None])
    assert spans("send paid") == []


def test_a_span_says_that_its_messages_were_not_confirmed() -> None:
    """How many, and the kind of the first error; not its text, which may name the broker's address."""
    error = BrokerUnavailable("amqp://user:secret@host is away")
    answers = _topic().sending([OutgoingMessage(b"", headers=_headers(1))] * 3, lambda: [None, error, error])
    assert answers == [None, error, error]
    (sent,) = spans("send paid")
    assert (attributes(sent)["error.type"], attributes(sent)["oncemq.unconfirmed"]) == (
        "BrokerUnavailable",
        2,
    )
    assert sent.status.status_code is trace.StatusCode.ERROR
    assert "secret" not in sent.to_json()


def test_a_span_says_what_became_of_its_message() -> None:
    """Names are those of OpenTelemetry's conventions; the key is a hash."""
    with started(take) as app:
        app.duplicate(app.publish("orders", ORDER, headers=SAMPLED))
    applied, duplicate = map(attributes, spans("process orders"))
    assert (applied["oncemq.outcome"], duplicate["oncemq.outcome"]) == ("applied", "duplicate")
    assert applied["messaging.system"] == "rabbitmq"
    assert applied["messaging.destination.name"] == "orders"
    assert applied["messaging.consumer.group.name"] == "shop-take"
    assert (applied["oncemq.consumer"], applied["oncemq.strategy"], applied["oncemq.attempt"]) == (
        "take",
        "unique_key",
        1,
    )
    assert len(applied["oncemq.key_hash"]) == 16
    assert "oncemq.key" not in applied


def test_a_duplicate_says_where_it_was_found_and_which_trace_applied_it() -> None:
    """A copy that its producer sent in another trace links to the span that applied the message."""
    other = {"traceparent": f"00-{'a' * 32}-00f067aa0ba902b7-01"}
    with started(take) as app:
        app.publish("orders", ORDER, headers=SAMPLED)
        app.publish("orders", ORDER, headers=other)
    applied, duplicate = spans("process orders")
    assert attributes(duplicate)["oncemq.tier"] == "database"
    assert attributes(duplicate)["oncemq.duplicate_of"] == TRACE
    assert [link.context for link in duplicate.links] == [applied.context]
    assert {"oncemq.tier", "oncemq.duplicate_of"}.isdisjoint(attributes(applied))


def test_a_copy_in_the_same_transaction_says_so() -> None:
    """The earlier one is known, although it is not committed yet."""
    with started(take) as app:
        app.publish_many("orders", [ORDER, ORDER])
    applied, duplicate = spans("process orders")
    assert attributes(duplicate)["oncemq.tier"] == "unit"
    assert attributes(duplicate)["oncemq.duplicate_of"] == trace_of(applied)


def test_a_duplicate_of_what_another_process_applied_names_no_trace() -> None:
    """Only this process's own and latest ones are remembered, and of each consumer apart."""
    with started(take) as app:
        app.publish("orders", ORDER, headers=UNSAMPLED)
        app.publish("paid", ORDER, headers=SAMPLED)
        app.publish("orders", ORDER, headers=SAMPLED)
    (duplicate,) = map(attributes, spans("process orders"))
    assert (duplicate["oncemq.outcome"], duplicate["oncemq.tier"]) == ("duplicate", "database")
    assert "oncemq.duplicate_of" not in duplicate


def test_a_unit_has_a_span_with_its_stages() -> None:
    """It links to its messages, and they link to it."""
    with started(take) as app:
        app.publish_many("orders", [{"id": name, "key": name} for name in "abc"])
    (unit,) = spans("unit orders")
    assert attributes(unit)["oncemq.unit.size"] == 3
    for stage in ("load", "handle", "save", "commit"):
        (span,) = spans(stage)
        assert span.parent == unit.context
    messages = spans("process orders")
    assert [link.context for link in unit.links] == [span.context for span in messages]
    assert all(span.links[0].context == unit.context for span in messages)


def test_a_failure_is_recorded_without_secrets_and_its_retry_is_in_the_same_trace() -> None:
    """The first attempt is an error with its traceback, the second one succeeds."""
    failures = [ValueError("postgresql://me:secret-word@db/x refused")]

    def handler(body: dict[str, Any], session: Session) -> None:
        take(body, session)
        if failures:
            raise failures.pop()

    with started(handler) as app:
        app.publish("orders", ORDER, headers=SAMPLED)
        app.clock.advance("1h")
    failed, applied = spans("process orders")
    assert trace_of(failed) == trace_of(applied) == TRACE
    assert failed.status.status_code is trace.StatusCode.ERROR
    (event,) = failed.events
    assert event.attributes is not None
    assert event.attributes["exception.type"] == "ValueError"
    assert "in handler" in str(event.attributes["exception.stacktrace"])
    assert "secret-word" not in failed.to_json()
    assert attributes(applied)["oncemq.attempt"] == 2


def test_the_context_is_current_in_the_handler_alone() -> None:
    """The message's baggage, too."""
    seen: list[Any] = []

    def handler(body: dict[str, Any], session: Session) -> None:
        take(body, session)
        seen.append((trace.get_current_span().get_span_context().trace_id, baggage.get_baggage("tenant")))

    with started(handler) as app:
        app.publish("orders", ORDER, headers=SAMPLED)
    assert seen == [(int(TRACE, 16), "acme")]
    assert not trace.get_current_span().get_span_context().is_valid
    assert baggage.get_baggage("tenant") is None


def test_an_async_handler_has_its_context() -> None:
    """The span is current across awaits."""
    seen: list[int] = []

    async def handler(body: dict[str, Any]) -> None:
        seen.append(trace.get_current_span().get_span_context().trace_id)

    with started(handler, effects="external", strategies=["none"]) as app:
        app.publish("orders", ORDER, headers=SAMPLED)
    assert seen == [int(TRACE, 16)]
    (span,) = spans("process orders")
    assert attributes(span)["oncemq.outcome"] == "applied"


@pytest.mark.parametrize("batch", [False, True], ids=["one", "batch"])
def test_an_async_handler_with_a_transaction_has_its_context(*, batch: bool) -> None:
    """Its span lasts until it has been awaited, and an error is recorded."""
    seen: list[int] = []

    async def one(body: dict[str, Any], session: AsyncSession) -> None:
        session.add(Effect(text=body["id"]))
        await session.flush()
        seen.append(trace.get_current_span().get_span_context().span_id)

    async def several(bodies: Batch[dict[str, Any]], session: AsyncSession) -> None:
        for body in bodies:
            await one(body, session)

    with started(several if batch else one) as app:
        assert app.publish("orders", ORDER, headers=SAMPLED).applied
    assert seen
    assert seen[0] in {span.context.span_id for span in spans("process orders") if span.context is not None}


def test_a_batch_has_one_span_that_links_to_its_messages() -> None:
    """Its messages may belong to many traces."""

    def handler(batch: Batch[dict[str, Any]], session: Session) -> None:
        session.add_all([Effect(text=body["id"]) for body in batch])

    with started(handler) as app:
        for name in "abc":
            app.publish("orders", {"id": name, "key": name}, headers=SAMPLED)
    batches = [
        span for span in spans("process orders") if "messaging.batch.message_count" in attributes(span)
    ]
    assert sum(attributes(span)["messaging.batch.message_count"] for span in batches) == 3
    assert all(link.context.trace_id == int(TRACE, 16) for span in batches for link in span.links)


def test_an_unsampled_message_leaves_no_span_and_hands_its_trace_on() -> None:
    """Its producer has decided, and the consumers of what its handler publishes follow that decision."""
    with started(pass_on) as app:
        app.publish("orders", ORDER, headers=UNSAMPLED)
        (published,) = app.published("paid")
    assert EXPORTER.get_finished_spans() == ()
    assert published.headers["traceparent"] == UNSAMPLED["traceparent"]


def test_what_the_share_leaves_out_is_left_out_for_the_whole_way() -> None:
    """The decision is made once, at the first message."""
    with started(pass_on, sample=0.0) as app:
        app.publish("orders", ORDER)
        (published,) = app.published("paid")
    assert EXPORTER.get_finished_spans() == ()
    assert published.headers["traceparent"].endswith("-00")


def test_a_message_is_sampled_once() -> None:
    """The end of a message asks no second time whether it is traced, and neither does its duplicate."""
    seen: list[bool] = []

    def handler(body: dict[str, Any], session: Session) -> None:
        take(body, session)
        seen.append(trace.get_current_span().get_span_context().is_valid)

    with started(handler, sample=0.3) as app:
        outcomes = app.publish_many("orders", [{"id": str(number), "key": "k"} for number in range(60)])
        assert len(spans("process orders")) == sum(seen)
        assert 0 < sum(seen) < 60
        for outcome in outcomes:
            app.redeliver(outcome)
    assert len(spans("process orders")) == 2 * sum(seen)


def test_workers_of_one_event_loop_have_units_of_their_own() -> None:
    """Their messages and stages are not mixed, whichever of them continues first."""
    tracing = Tracing()
    consumer = TracedConsumer("take", "rabbitmq", "orders", "g", (), 0.05, Redactor())
    handler = tracing.traced(BoundHandler("take", lambda run, item: None), consumer)

    async def work(number: int) -> None:
        delivery = Delivery(Message("orders", b"{}", message_id=str(number)))
        unit = Unit("shop.take", [delivery], time.monotonic() + 0.05)
        run: Any = SimpleNamespace(unit=unit)
        tracing.point("loaded")
        await asyncio.sleep(0)
        handler.call(run, SimpleNamespace(delivery=delivery))  # type: ignore[arg-type]
        for point in ("handled", "saved", "committed"):
            await asyncio.sleep(0)
            tracing.point(point)
        tracing.judged("take", [(delivery, PROCEED)])

    async def both() -> None:
        await asyncio.gather(work(1), work(2))

    # As in the thread of such a loop, where no other worker has been.
    contextvars.Context().run(asyncio.run, both())
    units = spans("unit orders")
    assert [len(unit.links) for unit in units] == [1, 1]
    for unit in units:
        parts = [span.name for span in EXPORTER.get_finished_spans() if span.parent == unit.context]
        assert parts == ["load", "handle", "save", "commit"]


@pytest.mark.parametrize("forged", ["", "00-zz-1-01", "x" * 5000, "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_forged_trace_harms_nothing(forged: str) -> None:
    """The message is processed, in a trace of its own."""
    with started(take) as app:
        assert app.publish("orders", ORDER, headers={"traceparent": forged}).applied
    assert [attributes(span)["oncemq.outcome"] for span in spans("process orders")] == ["applied"]


def test_log_lines_of_a_message_have_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    """A line about a failed message can be found by the trace id."""

    def handler(_: dict[str, Any], session: Session) -> None:
        raise ValueError("no")

    with caplog.at_level(logging.INFO), started(handler) as app:
        app.publish("orders", ORDER, headers=SAMPLED)
    assert any(TRACE in record.getMessage() for record in caplog.records)
