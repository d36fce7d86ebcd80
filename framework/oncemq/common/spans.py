"""A span inside of the current one, where the process uses OpenTelemetry; without it nothing is imported or done."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

Note = Callable[[str, str], None]
"""Sets an attribute of the span."""


@contextmanager
def inner_span(name: str, attributes: Mapping[str, str]) -> Iterator[Note]:
    """Make a span current, if the current one is recorded; yields a function that sets an attribute.

    Args:
        name: the span's; few different ones.
        attributes: known at its beginning.
    """
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None or not trace.get_current_span().is_recording():
        yield _nothing
        return
    # The error's text may have secrets; its kind says enough here, and the span around it has the rest.
    quiet = {"record_exception": False, "set_status_on_exception": False}
    with trace.get_tracer("oncemq").start_as_current_span(name, attributes=attributes, **quiet) as span:
        try:
            yield span.set_attribute
        except BaseException as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(trace.Status(trace.StatusCode.ERROR))
            raise


def _nothing(name: str, value: str) -> None:
    """Set no attribute."""
