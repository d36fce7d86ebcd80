"""Traces of a program as its collector sees them: over HTTP, set up by `tracing:` and the usual variables alone."""

import json
from pathlib import Path

import pytest

from support.apps.program import Program
from support.otlp import collector

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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of an app."""
    (tmp_path / "app.yaml").write_text(APP)
    (tmp_path / "handlers.py").write_text(HANDLERS)
    return tmp_path


def test_a_collector_receives_one_trace_of_every_consumer(folder: Path) -> None:
    """The last spans are sent before the process ends; the service has the app's name."""
    with collector() as collected:
        program = Program(folder, {"OTEL_EXPORTER_OTLP_ENDPOINT": collected.url})
        program.succeed("tables", "create")
        line = {"body": {"id": "o1"}, "headers": {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}}
        (folder / "orders.jsonl").write_text(json.dumps(line))
        program.succeed("publish", "orders", "orders.jsonl", "--envelope")
        program.succeed("run", "--until-idle", "300ms")
    resources = [part for request in collected.traces for part in request.resource_spans]
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
    assert collected.metrics == [], "metrics are sent only where a variable asks for them"


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
