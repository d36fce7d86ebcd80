"""OpenTelemetry: the trace of a message that is published, in its headers, and spans for its sending."""

from collections.abc import Callable, Mapping, Sequence
from random import getrandbits
from typing import Any, Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from oncemq.common.error_text import name_of
from oncemq.message.envelope import OutgoingMessage
from oncemq.message.outgoing import SendErrors
from oncemq.observe.logs import now_handled

MOST_LINKS: Final = 64
"""Of one span."""
_TRACEPARENT: Final = "traceparent"
_CARRIED: Final = ("traceparent", "tracestate", "baggage")
_SAMPLED: Final = 1
_SHORTEST: Final = 55


def _hand_on(headers: dict[str, str]) -> None:
    """Write the trace of the message whose handler publishes and which is not sampled, so that the next one is not sampled either.

    Without a trace an unsampled one begins here.
    """
    message = now_handled()
    if message is None:
        return
    received = message.headers
    for name in _CARRIED:
        if name in received:
            headers.setdefault(name, received[name])
    headers.setdefault(_TRACEPARENT, f"00-{getrandbits(128) or 1:032x}-{getrandbits(64) or 1:016x}-00")


class TracedTopic:
    """Traces the messages that are published to a topic.

    Args:
        tracer: makes the spans.
        system: the kind of the topic's broker.
        topic: the topic's name.
    """

    def __init__(self, tracer: trace.Tracer, system: str, topic: str) -> None:
        self._tracer = tracer
        self._topic = topic
        self._shared = {"messaging.system": system, "messaging.destination.name": topic}
        self._created = {**self._shared, "messaging.operation.type": "create"} | _named("publish")
        self._sent = {**self._shared, "messaging.operation.type": "send"} | _named("send")

    def __call__(self, headers: dict[str, str], message_id: str) -> None:
        """Write the current trace into a message's headers, with a span of its own if it is sampled."""
        current = trace.get_current_span()
        if not current.is_recording():
            if current.get_span_context().is_valid:
                propagate.inject(headers)
            else:
                _hand_on(headers)
            return
        own = {**self._created, "messaging.message.id": message_id}
        with self._tracer.start_as_current_span(
            f"publish {self._topic}", kind=SpanKind.PRODUCER, attributes=own
        ):
            propagate.inject(headers)

    def sending(self, messages: Sequence[OutgoingMessage], send: Callable[[], SendErrors]) -> SendErrors:
        """Send messages, with a span if one of them is sampled: a child of a lone message's, else it links to theirs."""
        sampled = [message.headers for message in messages if sampled_flag(message.headers)]
        if not sampled:
            return send()
        alone = propagate.extract(sampled[0], context=Context()) if len(messages) == 1 else None
        links = [] if alone is not None else [Link(span_context(found)) for found in sampled[:MOST_LINKS]]
        own: dict[str, Any] = {**self._sent, "messaging.batch.message_count": len(messages)}
        span = self._tracer.start_span(
            f"send {self._topic}", alone or Context(), SpanKind.CLIENT, attributes=own, links=links
        )
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            answers = send()
            errors = [error for error in answers if error is not None]
            if errors:
                span.set_attributes({"error.type": name_of(errors[0]), "oncemq.unconfirmed": len(errors)})
                span.set_status(Status(StatusCode.ERROR))
            return answers


def _named(operation: str) -> dict[str, str]:
    return {"messaging.operation.name": operation}


def sampled_flag(headers: Mapping[str, str]) -> bool | None:
    """Return whether the trace in a message's headers is sampled; None without one that can be read."""
    decided = headers.get(_TRACEPARENT)
    if decided is None or len(decided) < _SHORTEST:
        return None
    try:
        return bool(int(decided[53:55], 16) & _SAMPLED)
    except ValueError:
        return None


def span_context(headers: Mapping[str, str]) -> trace.SpanContext:
    """Return the span that a message's headers name; an invalid one without."""
    found = propagate.extract(headers, context=Context())
    return trace.get_current_span(found).get_span_context()
