"""Spans of protected requests, on WSGI and ASGI: one inside of the server's, with what became of the request."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from oncemq.idempotent_requests import RequestLedger
from support.apps.payments import Call, MakeService, order, pay


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Collect the spans of the test."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def traced(make: Any, call: Call) -> Any:
    """Send a request inside of a server's span."""
    with trace.get_tracer("server").start_as_current_span("POST /payments"):
        return make.call(call)


def spans(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    """Return the finished spans of protected requests."""
    return [span for span in exporter.get_finished_spans() if span.name == "idempotent request"]


def outcomes(exporter: InMemorySpanExporter) -> list[object]:
    """Return what became of them."""
    return [(span.attributes or {})["oncemq.outcome"] for span in spans(exporter)]


def test_a_span_says_what_became_of_a_request(
    file_ledger: RequestLedger, make_service: MakeService, exporter: InMemorySpanExporter
) -> None:
    """Applied, its copy, another content with its key, and a failure; the key itself is not shown."""
    service = make_service(file_ledger)
    for call in (order(), order(), order(amount=7), order(key='"k-2"', status=500)):
        traced(service, call)
    assert outcomes(exporter) == ["applied", "duplicate", "refused", "failed"]
    (server, *_) = [span for span in exporter.get_finished_spans() if span.name == "POST /payments"]
    first = spans(exporter)[0]
    assert first.parent == server.context
    assert len(str((first.attributes or {})["oncemq.key_hash"])) == 16
    assert "k-1" not in first.to_json()


def test_an_exception_of_the_handler_marks_the_span(
    file_ledger: RequestLedger, make_service: MakeService, exporter: InMemorySpanExporter
) -> None:
    """By its kind; its text may have secrets."""

    def broken(given: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
        pay(given)
        raise ZeroDivisionError("a secret")

    with pytest.raises(ZeroDivisionError):
        traced(make_service(file_ledger, broken), order())
    (span,) = spans(exporter)
    assert ((span.attributes or {})["error.type"], outcomes(exporter)) == ("ZeroDivisionError", ["failed"])
    assert span.status.status_code is trace.StatusCode.ERROR
    assert "a secret" not in span.to_json()


def test_without_a_recorded_span_around_it_there_is_none(
    file_ledger: RequestLedger, make_service: MakeService, exporter: InMemorySpanExporter
) -> None:
    """The server decides whether a request is traced."""
    assert make_service(file_ledger).call(order()).status == 201
    assert spans(exporter) == []
