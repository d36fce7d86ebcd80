"""Sections `http`, `logging`, `tracing`, `recycle` and `redis`: what a process shows of itself, uses, and when it is replaced."""

from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from oncemq.config.model.fields import (
    VARIABLE,
    Address,
    ByteSize,
    Count,
    Duration,
    LargeCount,
    SecretText,
    Share,
    Text,
    Url,
    one_of,
)
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


class Recycle(Section):
    """When a worker process of `oncemq run` is replaced by a new one, which is ready before the old one drains."""

    after_messages: LargeCount | None = Field(
        None,
        description="After so many messages; up to a fifth earlier, so that not all are due together.",
        examples=[100000],
    )
    above_memory: ByteSize | None = Field(
        None, description="When it occupies so much memory.", examples=["1GiB"]
    )
    every: Duration | None = Field(
        None,
        description="When it is so old; up to a fifth earlier, so that not all are due together.",
        examples=["24h"],
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


class Redis(Section):
    """Redis for locks, marks and flags: one server, a cluster, or a server named by sentinels."""

    url: Url = Field(
        description="Where it is: `redis://`, `rediss://` (TLS), `redis+cluster://` or `redis+sentinel://`; of a "
        "cluster several addresses, separated by commas.",
        examples=["redis://localhost:6379/0", "redis+cluster://localhost:7001,localhost:7002"],
    )
    username: Text | None = Field(None, description="Instead of in the URL.")
    password: SecretText | None = Field(
        None, description="Instead of in the URL.", examples=["${REDIS_PASSWORD}"]
    )
    timeout: Duration | None = Field(
        None, description="How long connecting, and a single answer, may take. Default 2s.", examples=["2s"]
    )
    connections: Count | None = Field(
        None, description="Connections to one server at most, in each process. Default 64."
    )
    ca: Text | None = Field(
        None,
        description="For `rediss://`: a file of authorities to trust besides the system's. The server must always prove "
        "to be the host that the URL names, each node of a cluster the one that the others name.",
        examples=["/etc/ssl/our-ca.pem"],
    )
    cert: Text | None = Field(None, description="For `rediss://`: our own certificate, a file.")
    key: Text | None = Field(None, description="The file of its key, unless `cert` holds it.")
