"""Exports a process's spans as the `OTEL_*` variables say, unless the service has set up OpenTelemetry itself."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any, Final

from oncemq.errors import ConfigError, MissingExtra

_EXPORTERS: Final = "opentelemetry_traces_exporter"
"""The entry-point group in which exporters register."""
_BY_PROTOCOL: Final = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}


@contextmanager
def exported(app: str, *, wanted: bool) -> Iterator[None]:
    """Export the spans that are made meanwhile; at the end the last ones are sent.

    Nothing is done without tracing, or where a tracer provider is set already.

    Args:
        app: the app's name, the default of `OTEL_SERVICE_NAME`.
        wanted: the app declares tracing.

    Raises:
        MissingExtra: OpenTelemetry's SDK, or the exporter that `OTEL_TRACES_EXPORTER` names, is not installed.
    """
    provider = _provider(app) if wanted else None
    try:
        yield
    finally:
        if provider is not None:
            provider.shutdown()


def _provider(app: str) -> Any:
    from opentelemetry import trace  # noqa: PLC0415 - optional

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    try:
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415 - optional
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - optional
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - optional
    except ModuleNotFoundError:
        raise MissingExtra(
            'tracing needs OpenTelemetry\'s SDK, or a tracer provider of your service: pip install "oncemq[otel]"'
        ) from None
    named = {} if "OTEL_SERVICE_NAME" in os.environ else {SERVICE_NAME: app}
    provider = TracerProvider(resource=Resource.create(named))
    for exporter in _exporters():
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider


def _exporters() -> Iterator[Any]:
    for name in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(","):
        if name.strip() not in {"", "none"}:
            yield _exporter(name.strip())


def _exporter(name: str) -> Any:
    wanted = name
    if name == "otlp":
        general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", general)
        if protocol not in _BY_PROTOCOL:
            raise ConfigError(
                f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}: write {' or '.join(sorted(_BY_PROTOCOL))}"
            )
        wanted = _BY_PROTOCOL[protocol]
    for point in entry_points(group=_EXPORTERS, name=wanted):
        return point.load()()
    known = sorted({point.name for point in entry_points(group=_EXPORTERS)})
    raise MissingExtra(
        f"OTEL_TRACES_EXPORTER asks for the exporter {wanted!r}, which is not installed (here: {', '.join(known) or 'none'}): "
        f"pip install opentelemetry-exporter-{wanted.replace('_', '-')}"
    )
