"""Builds the tracing of an app; OpenTelemetry is imported only where the app asks for it."""

from typing import TYPE_CHECKING, Final

from oncemq.common.redaction import Redactor
from oncemq.config.build.shared_parts import Reporter
from oncemq.config.model.app_model import AppModel
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.errors import MissingExtra
from oncemq.handler.binding import BoundHandler

if TYPE_CHECKING:
    from oncemq.observe.tracing import Tracing

_SYSTEMS: Final = {"amqp": "rabbitmq", "rocketmq": "rocketmq", "kafka": "kafka"}
"""OpenTelemetry's names of brokers, by the beginning of a URL's scheme."""


def build_tracing(model: AppModel, report: Reporter) -> "Tracing | None":
    """Return the app's tracing; None if it wants none, or OpenTelemetry is not installed, which is reported."""
    if model.tracing is None:
        return None
    try:
        from oncemq.observe.tracing import Tracing  # noqa: PLC0415 - optional
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
    from oncemq.observe.tracing import TracedConsumer  # noqa: PLC0415 - optional

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
