"""Plain values of a document: identifiers, what users configured, and the way a message is retried."""

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from inspect import isroutine
from typing import Any

from oncemq.common.durations import format_duration
from oncemq.common.redaction import MASK, Redactor, is_secret_name
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.engine.plan import ConsumerPlan
from oncemq.handler.payload import type_name
from oncemq.retry.backoff import RetryPolicy

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class Identifiers:
    """Identifiers that a document may use in references, each given once."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}

    def of(self, name: str) -> str:
        """Return the identifier of a name: the name itself where it can be one."""
        if name in self._given:
            return self._given[name]
        safe = _UNSAFE.sub("-", name).strip("-") or "unnamed"
        taken, found, number = set(self._given.values()), safe, 1
        while found in taken:
            number += 1
            found = f"{safe}-{number}"
        self._given[name] = found
        return found


def extensions(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts as AsyncAPI's extension fields, without those that are None or empty."""
    return {f"x-oncemq-{name}": value for name, value in facts.items() if value not in (None, "", [], {}, ())}


def plain(value: Any, redact: Redactor) -> Any:
    """Return a configured value as JSON can hold it, its secrets masked."""
    if isinstance(value, Mapping):
        return {
            str(name): MASK if is_secret_name(str(name)) else plain(part, redact)
            for name, part in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(part, redact) for part in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return redact(named(value) if callable(value) else _text(value))


def _text(value: Any) -> str:
    if isinstance(value, timedelta):
        return format_duration(value)
    return str(value.value if isinstance(value, Enum) else value)


def named(thing: Any) -> str:
    """Return `module:name` of a function or class, or a type as it is written."""
    if isinstance(thing, str):
        return thing
    if isinstance(thing, type) or isroutine(thing):
        return f"{thing.__module__}:{thing.__qualname__}"
    return type_name(thing)


def strategies_of(settled: ConsumerSettings, redact: Redactor) -> list[Any]:
    """Return the chain as `app.yaml` writes it."""
    return [
        {choice.name: plain(choice.options, redact)} if choice.options else choice.name
        for choice in settled.strategies
    ]


def routes_of(settled: ConsumerSettings, consumer: ConsumerPlan, redact: Redactor) -> dict[str, Any]:
    """Return the handler of each route, and what differs for its messages; empty without routes."""
    if settled.routes is None:
        return {}
    retries = {route.value: route.retry for route in consumer.routes}
    found: dict[str, dict[str, Any]] = {}
    for value, handler in settled.routes.handlers.items():
        different = settled.differing.get(value, {})
        found[value] = {"handler": named(handler)}
        if "strategies" in different:
            found[value]["strategies"] = strategies_of(settled.by_route[value], redact)
        if "retry" in different:
            found[value]["retry"] = retry_of(retries[value])
        found[value] |= {name: different[name] for name in ("key", "version") if name in different}
        if "identity" in different:
            found[value]["identity"] = list(different["identity"])
        if "schema" in different:
            found[value]["schema"] = named(different["schema"])
    return found


def retry_of(policy: RetryPolicy) -> dict[str, Any]:
    """Return attempts and pauses as `app.yaml` writes them, with the longest time that they take in all."""
    found = _policy(policy) | {"within": format_duration(policy.horizon())}
    errors = {named(kind): _policy(other) for kind, other in policy.by_error}
    return found | ({"errors": errors} if errors else {})


def _policy(policy: RetryPolicy) -> dict[str, Any]:
    pauses = {
        "first": format_duration(policy.first),
        "factor": policy.factor,
        "max": format_duration(policy.max),
        "jitter": policy.jitter,
    }
    found: dict[str, Any] = {"attempts": policy.attempts}
    if policy.attempts > 1:
        found["backoff"] = pauses
    if policy.immediate:
        found["immediate"] = policy.immediate
    return found
