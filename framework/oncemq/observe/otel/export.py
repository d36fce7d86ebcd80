"""Exports a process's spans and metrics as the `OTEL_*` variables say, unless the service has set up OpenTelemetry itself."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import uuid4

from oncemq.common.redaction import Redactor
from oncemq.errors import ConfigError, MissingExtra
from oncemq.observe.logs import own_logger

if TYPE_CHECKING:
    from oncemq.observe.metrics import MetricsObserver
    from oncemq.observe.otel.instruments import Instruments

_Signal = Literal["traces", "metrics"]
_BY_PROTOCOL: Final = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
_NOT_SET: Final = "_ProxyMeterProvider"
"""Class of the API's meter provider while there is none; it is not public there, as that of the tracer provider is."""


@contextmanager
def exported(app: str, *, traces: bool) -> Iterator[None]:
    """Export the spans that are made meanwhile, and the metrics, if variables ask for them; at the end the last ones are sent.

    Nothing is done for what has a provider already.

    Args:
        app: the app's name, the default of `OTEL_SERVICE_NAME`.
        traces: the app declares tracing.

    Raises:
        MissingExtra: OpenTelemetry's SDK, or the exporter that `OTEL_TRACES_EXPORTER` names, is not installed. Metrics are
            not declared by the app: without theirs it runs, and the log says so.
    """
    with ExitStack() as providers:
        if traces:
            _end_at(providers, _tracer_provider(app))
        if _metrics_wanted():
            try:
                _end_at(providers, _meter_provider(app))
            except (MissingExtra, ConfigError) as error:
                own_logger(Redactor()).warning(f"metrics are not exported: {error}")
        yield


def _end_at(stack: ExitStack, provider: Any) -> None:
    """Shut a provider down at the end, which sends what it has; a collector that is away then fails nothing."""

    def end() -> None:
        try:
            provider.shutdown()
        except Exception as error:
            own_logger(Redactor()).warning("the last spans or metrics could not be exported", exc_info=error)

    if provider is not None:
        stack.callback(end)


def instrumented(app: str, process: int | None = None) -> "Callable[[MetricsObserver], Instruments] | None":
    """Return what shows metrics to the meter provider of this process; None while it has none.

    Args:
        app: the app's name.
        process: the number of this worker process; None if it has none.
    """
    provider = current_provider()
    if provider is None:
        return None
    if find_spec("prometheus_client") is None:
        own_logger(Redactor()).warning(
            'metrics are not shown to OpenTelemetry: they need prometheus_client: pip install "oncemq[otel]"'
        )
        return None
    from oncemq.observe.otel.instruments import Instruments  # noqa: PLC0415 - optional

    return lambda metrics: Instruments(provider, app, metrics, process)


def current_provider() -> Any:
    """Return the meter provider of this process; None while it has none."""
    api: Any = sys.modules.get("opentelemetry.metrics")
    provider = None if api is None else api.get_meter_provider()
    return None if type(provider).__name__ == _NOT_SET else provider


def _tracer_provider(app: str) -> Any:
    from opentelemetry import trace  # noqa: PLC0415 - optional

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    try:
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - optional
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - optional
    except ModuleNotFoundError:
        raise MissingExtra(
            'tracing needs OpenTelemetry\'s SDK, or a tracer provider of your service: pip install "oncemq[otel]"'
        ) from None
    provider = TracerProvider(resource=_resource(app))
    for exporter in _exporters("traces"):
        provider.add_span_processor(BatchSpanProcessor(exporter()))
    trace.set_tracer_provider(provider)
    return provider


def _metrics_wanted() -> bool:
    """Return whether variables ask for metrics; unlike traces they are asked for nowhere else."""
    return bool(_names("metrics", "")) and os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true"


def _meter_provider(app: str) -> Any:
    try:
        from opentelemetry import metrics  # noqa: PLC0415 - optional
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415 - optional
        from opentelemetry.sdk.metrics.export import (  # noqa: PLC0415 - optional
            MetricReader,
            PeriodicExportingMetricReader,
        )
    except ModuleNotFoundError:
        raise MissingExtra(
            'OTEL_METRICS_EXPORTER asks for them, and OpenTelemetry is not installed: pip install "oncemq[otel]"'
        ) from None
    if type(metrics.get_meter_provider()).__name__ != _NOT_SET:
        return None
    made = [exporter() for exporter in _exporters("metrics")]
    readers = [
        each if isinstance(each, MetricReader) else PeriodicExportingMetricReader(each) for each in made
    ]
    provider = MeterProvider(readers, resource=_resource(app))
    metrics.set_meter_provider(provider)
    return provider


def _resource(app: str) -> Any:
    """Return what is said about this process: the app's name, and an id of its own, unless variables give others."""
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - optional

    given = {
        part.partition("=")[0].strip() for part in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")
    }
    if "OTEL_SERVICE_NAME" in os.environ:
        given.add("service.name")
    own = {"service.name": app, "service.instance.id": str(uuid4())}
    return Resource.create({name: value for name, value in own.items() if name not in given})


def _names(signal: _Signal, default: str) -> list[str]:
    """Return the exporters that a variable names."""
    named = os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", default).split(",")
    return [name.strip() for name in named if name.strip() not in {"", "none"}]


def _exporters(signal: _Signal) -> Iterator[Callable[[], Any]]:
    for name in _names(signal, "otlp"):
        yield _exporter(signal, name)


def _exporter(signal: _Signal, name: str) -> Callable[[], Any]:
    group = f"opentelemetry_{signal}_exporter"
    wanted = name
    if name == "otlp":
        general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        protocol = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", general)
        if protocol not in _BY_PROTOCOL:
            raise ConfigError(
                f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}: write {' or '.join(sorted(_BY_PROTOCOL))}"
            )
        wanted = _BY_PROTOCOL[protocol]
    for point in entry_points(group=group, name=wanted):
        found: Callable[[], Any] = point.load()
        return found
    known = sorted({point.name for point in entry_points(group=group)})
    raise MissingExtra(
        f"OTEL_{signal.upper()}_EXPORTER asks for the exporter {wanted!r}, which is not installed (here: {', '.join(known) or 'none'}): "
        f"pip install opentelemetry-exporter-{wanted.replace('_', '-')}"
    )
