"""Types of what `App.topic` and `App.consumer` accept in addition to their named arguments; each means the same as in YAML."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, Required, TypedDict

Span = timedelta | str
"""A duration: a timedelta, or a text such as `500ms`, `30s`, `10m`, `7d`."""


class ClaimCheckOptions(TypedDict, total=False):
    """Where a topic's large bodies lie; sizes such as `256KiB`, `64MiB`."""

    store: Required[str]
    over: str
    most: str
    keep: Span
    options: Mapping[str, Any]


class BodyVersionOptions(TypedDict, total=False):
    """Where a message has its body's version: by `version`, an expression, or by `registry_ids`, a schema registry's ids by version."""

    version: str
    without: int | str
    registry_ids: Mapping[int | str, int | str | Sequence[int | str]]


class TopicOptions(TypedDict, total=False):
    """Options of a topic. Those of the shipped adapters are here too; a custom adapter gets its options from `options=`."""

    format: Literal["json", "confluent-json", "text", "bytes"]
    schema: type[Any] | str
    unroutable: Literal["wait", "drop", "dead_letter"]
    delay_by: Literal["outbox", "broker"]
    claim_check: ClaimCheckOptions
    compatibility: Literal[
        "none",
        "backward",
        "backward_transitive",
        "forward",
        "forward_transitive",
        "full",
        "full_transitive",
    ]
    body_version: int | str | BodyVersionOptions
    # RabbitMQ
    queue: str
    exchange: str
    exchange_type: str
    routing_key: str
    routing_keys: Sequence[str]
    queue_type: str
    prefetch: int
    declare: bool | Literal["missing"]
    partitions: int
    max_priority: int
    # RocketMQ
    topic_name: str
    tags: str | Sequence[str]
    filter: str
    start: str
    fifo: bool
    create: bool
    queues: int


class BackoffOptions(TypedDict, total=False):
    """The pauses between the tries of a message."""

    first: Span
    factor: float
    max: Span
    jitter: float


class RetryRuleOptions(TypedDict, total=False):
    """How often a message that failed is tried, and when."""

    attempts: int
    backoff: BackoffOptions
    immediate: int


class RetryOptions(RetryRuleOptions, total=False):
    """The same, and other rules by the exception's class: a class, or its name as `module:Class`."""

    attempts_from: str
    never: Sequence[type[BaseException] | str]
    errors: Mapping[type[BaseException] | str, RetryRuleOptions]


class RouteOptions(TypedDict, total=False):
    """What differs for the messages of a route; what is left out is as for the consumer's others."""

    strategies: Sequence[str | Mapping[str, Any]]
    retry: RetryOptions
    key: str | Sequence[str]
    version: str
    identity: str | Sequence[str]
    schema: type[Any] | str


class LimitOptions(TypedDict, total=False):
    """How long a handler may take."""

    soft: Span
    hard: Span


class ExpiresOptions(TypedDict, total=False):
    """When a message is too old to run, and what becomes of it."""

    after: Span
    deadline: str
    then: Literal["ignore", "dead_letter"]


class DelayOptions(TypedDict):
    """Where producers ask for a delay of a message, and the longest that they get."""

    by: str
    limit: Span


class OnDeadOptions(TypedDict, total=False):
    """What happens when a message has finally failed."""

    run: Callable[..., Any] | str
    hold_key: bool
    most: int


class BreakerOptions(TypedDict, total=False):
    """When a breaker opens, and what it does then."""

    above: Required[float]
    window: Span
    minimum: int
    action: Literal["warn", "slow", "pause"]
    open_for: Span


class BreakersOptions(TypedDict, total=False):
    """Breakers of a consumer; a number is the share above which it opens."""

    duplicates: float | BreakerOptions
    failures: float | BreakerOptions
    hot_key: float | BreakerOptions


class AcceptsOptions(TypedDict, total=False):
    """The versions of payloads that a handler takes, and functions that bring a body to the next version."""

    version: str
    versions: Required[Sequence[int]]
    without: int
    upcasters: Mapping[int, Callable[[Any], Any] | str]


class RateOptions(TypedDict, total=False):
    """How many messages a consumer takes: `200/s`, `30/m`, `1000/h`."""

    limit: Required[str]
    burst: int
    shared: bool


class BatchOptions(TypedDict, total=False):
    """How many messages may share one transaction, how long they wait for each other, and by which value."""

    limit: int
    within: Span
    by: str


class ConcurrencyOptions(TypedDict):
    """How many messages with the same value each process works on at once."""

    by: str
    limit: int


class ConsumerOptions(TypedDict, total=False):
    """Options of a consumer."""

    topics: Sequence[str] | Mapping[str, str | None]
    effects: Literal["database", "external"]
    workers: Literal["auto"] | int
    unit_time: Span
    batch: BatchOptions
    retry: RetryOptions
    on_retry: Literal["go_on", "hold_key"]
    expires: Span | ExpiresOptions
    asked_delay: DelayOptions
    on_dead: Callable[..., Any] | str | OnDeadOptions
    reply: bool
    isolate: bool
    keep: Span
    limits: LimitOptions
    breakers: BreakersOptions
    rate: str | RateOptions
    concurrency: ConcurrencyOptions
    accepts: AcceptsOptions
    in_flight: int
    publishes: Sequence[str]
    mode: Literal["share", "broadcast"]
    formerly: str | Sequence[str]
    middlewares: Sequence[type[Any] | str | object]
    key: str | Sequence[str]
    version: str
    identity: str | Sequence[str]
    format: Literal["json", "confluent-json", "text", "bytes"]
    schema: type[Any] | str


Strategies = Sequence[str | Mapping[str, Any]]
"""Strategies in order: a name, or a mapping of the name to its options."""
