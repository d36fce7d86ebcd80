"""Metrics of a program as its collector sees them: over HTTP, set up by the usual variables alone."""

import json
from pathlib import Path

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from support.apps.warm import WarmProgram
from support.otlp import Collected, collector

APP = """\
app: shop
brokers: {local: {url: "embedded:///broker.db"}}
database: {url: "sqlite:///shop.db"}
topics: {orders: {key: body.id, strategies: [unique_key]}}
consumers: {take: {topic: orders, handler: "handlers:take"}}
"""
HANDLERS = """\
from sqlalchemy.orm import Session


def take(order: dict, session: Session) -> None: ...
"""
DYING = """\
import os
import pathlib
import signal

from sqlalchemy.orm import Session


def take(order: dict, session: Session) -> None:
    died = pathlib.Path("died")
    if not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of an app, without a word about metrics, with a message and its copy."""
    (tmp_path / "app.yaml").write_text(APP)
    (tmp_path / "handlers.py").write_text(HANDLERS)
    (tmp_path / "orders.jsonl").write_text(json.dumps({"id": "o1"}) + "\n" + json.dumps({"id": "o1"}))
    return tmp_path


def work(program: WarmProgram) -> None:
    """Run the app until its messages are settled."""
    program.succeed("tables", "create")
    program.succeed("publish", "orders", "orders.jsonl")
    program.succeed("run", "--until-idle", "300ms")


def last(
    collected: Collected, name: str = "oncemq_messages_total"
) -> tuple[dict[str, Metric], dict[str, str]]:
    """Return the metrics of the last request that has `name`, by their names, and what it says about the process."""
    for request in reversed(collected.metrics):
        (resource,) = request.resource_metrics
        found = {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}
        if name in found:
            return found, {each.key: each.value.string_value for each in resource.resource.attributes}
    raise LookupError(name)


def counts_of(metric: Metric) -> dict[tuple[tuple[str, str], ...], float]:
    """Return the numbers of a counter by their labels."""
    return {
        tuple(sorted((each.key, each.value.string_value) for each in point.attributes)): point.as_double
        or point.as_int
        for point in metric.sum.data_points
    }


def test_a_collector_receives_the_metrics_of_a_plain_app(folder: Path) -> None:
    """The last numbers are sent before the process ends; the service has the app's name, the process an id of its own."""
    with collector() as collected:
        program = WarmProgram(
            folder, {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": collected.url}
        )
        work(program)
    found, process = last(collected)
    assert counts_of(found["oncemq_messages_total"]) == {
        (("consumer", "take"), ("outcome", outcome), ("process", "0")): 1.0
        for outcome in ("applied", "duplicate")
    }
    assert found["oncemq_messages_total"].sum.is_monotonic
    assert sum(point.count for point in found["oncemq_unit_messages"].histogram.data_points) >= 1
    assert process["service.name"] == "shop"
    assert process["service.instance.id"]


def test_an_exporter_that_cannot_be_had_is_named_and_the_app_runs(folder: Path) -> None:
    """A variable of the whole platform keeps no app from its work."""
    program = WarmProgram(folder, {"OTEL_METRICS_EXPORTER": "carrier-pigeon"})
    program.succeed("tables", "create")
    done = program.call("run", "--until-idle", "300ms")
    assert done.returncode == 0
    assert "pip install opentelemetry-exporter-carrier-pigeon" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("variables", "service"),
    [
        ({"OTEL_SERVICE_NAME": "checkout"}, "checkout"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=checkout,deployment.environment=test"}, "checkout"),
    ],
)
def test_variables_name_the_service(folder: Path, variables: dict[str, str], service: str) -> None:
    """The app's name is only the default."""
    with collector() as collected:
        program = WarmProgram(
            folder,
            {
                "OTEL_METRICS_EXPORTER": "otlp",
                "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{collected.url}/v1/metrics",
                **variables,
            },
        )
        work(program)
    assert last(collected)[1]["service.name"] == service


def test_a_collector_receives_what_the_supervisor_counts(folder: Path) -> None:
    """A process that died and was started again: exported by a process of its own, where each count begins at zero."""
    (folder / "handlers.py").write_text(DYING)
    with collector() as collected:
        program = WarmProgram(
            folder, {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": collected.url}
        )
        work(program)
    _, worker = last(collected)
    found, supervisor = last(collected, "oncemq_worker_restarts_total")
    restarts = counts_of(found["oncemq_worker_restarts_total"])
    assert restarts == {(("process", "0"),): 1}
    recycles = counts_of(found["oncemq_worker_recycles_total"])
    assert recycles[("failed", "no"), ("process", "0"), ("reason", "memory")] == 0
    assert found["oncemq_worker_restarts_total"].sum.is_monotonic
    assert supervisor["service.name"] == "shop"
    assert supervisor["service.instance.id"] != worker["service.instance.id"]
