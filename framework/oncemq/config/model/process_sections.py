"""Sections `http`, `logging` and `tracing`: what a process shows of itself."""

from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from oncemq.config.model.fields import VARIABLE, Address, Share, one_of
from oncemq.config.model.section import Section


def _words(*words: str) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"enum": list(words)}, VARIABLE]})


LogFormat = Annotated[
    Literal["auto", "console", "json"],
    PlainValidator(one_of("auto", "console", "json")),
    _words("auto", "console", "json"),
]
_LEVELS = ("debug", "info", "warning", "error")
LogLevel = Annotated[str, PlainValidator(one_of(*_LEVELS)), _words(*_LEVELS)]


class Http(Section):
    """HTTP endpoint for metrics and health."""

    address: Address = Field(
        description="host:port of /metrics, /healthz and /readyz, for all worker processes together."
    )


class Logging(Section):
    """Content and format of logs."""

    configure: bool = Field(
        True,
        description="false leaves Python's logging as your service has set it up: OnceMQ writes to the logger `oncemq`, or to "
        "structlog where that is configured.",
    )
    level: LogLevel = Field("info", description="The least severe level that is logged.")
    format: LogFormat = Field("auto", description="`console`, `json`, or `auto`: console on a terminal.")
    row_values: bool = Field(
        False,
        description="Whether errors may show values of rows, as databases quote them, in logs and dead letters.",
    )


class Tracing(Section):
    """OpenTelemetry traces; exporter, service name and the rest come from the usual `OTEL_*` variables."""

    sample: Share = Field(
        1.0,
        description="Share of the messages whose producer has not decided about sampling. Default 1.",
        examples=[0.01],
    )
    keys: bool = Field(
        False, description="Whether spans show business keys. Default false: they have a hash of them."
    )
