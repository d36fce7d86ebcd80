"""Traces of a program as its collector sees them: over HTTP, set up by `tracing:` and the usual variables alone."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.apps.program import Program

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
APP = """\
app: shop
brokers: {local: {url: "embedded:///broker.db"}}
database: {url: "sqlite:///shop.db"}
tracing: {sample: 0}
topics:
  orders: {key: body.id, strategies: [unique_key]}
  paid: {key: body.id, strategies: [unique_key]}
consumers:
  take: {topic: orders, handler: "handlers:take"}
  settle: {topic: paid, handler: "handlers:settle"}
"""
HANDLERS = """\
from oncemq import Publisher
from sqlalchemy.orm import Session


def take(order: dict, session: Session, publisher: Publisher) -> None:
    publisher.publish("paid", order)


def settle(order: dict, session: Session) -> None: ...
"""


@contextmanager
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """Yield a collector's URL, and what it has been sent."""
    received: list[ExportTraceServiceRequest] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", received
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of an app."""
    (tmp_path / "app.yaml").write_text(APP)
    (tmp_path / "handlers.py").write_text(HANDLERS)
    return tmp_path


def test_a_collector_receives_one_trace_of_every_consumer(folder: Path) -> None:
    """The last spans are sent before the process ends; the service has the app's name."""
    with collector() as (url, received):
        program = Program(folder, {"OTEL_EXPORTER_OTLP_ENDPOINT": url})
        program.succeed("tables", "create")
        line = {"body": {"id": "o1"}, "headers": {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}}
        (folder / "orders.jsonl").write_text(json.dumps(line))
        program.succeed("publish", "orders", "orders.jsonl", "--envelope")
        program.succeed("run", "--until-idle", "300ms")
    resources = [part for request in received for part in request.resource_spans]
    found = [span for part in resources for scope in part.scope_spans for span in scope.spans]
    of_trace = {span.name for span in found if span.trace_id.hex() == TRACE}
    assert of_trace == {"process orders", "publish paid", "send paid", "process paid"}
    assert {span.name for span in found} >= {"unit orders", "load", "handle", "save", "commit"}
    services = {
        value.value.string_value
        for part in resources
        for value in part.resource.attributes
        if value.key == "service.name"
    }
    assert services == {"shop"}


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "pip install opentelemetry-exporter-zipkin"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "carrier-pigeon"}, "write grpc or http/protobuf"),
    ],
)
def test_an_exporter_that_cannot_be_had_is_named(folder: Path, variables: dict[str, str], words: str) -> None:
    """The process does not start without the traces that were asked for."""
    program = Program(folder, variables)
    program.succeed("tables", "create")
    done = program.call("run", "--until-idle", "300ms")
    assert done.returncode != 0
    assert words in done.stderr + done.stdout
