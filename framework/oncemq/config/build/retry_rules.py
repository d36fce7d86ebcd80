"""Imports the exceptions of `retry:`, and finds rules that can never apply."""

import builtins
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from oncemq.common.problems import Problem, Severity
from oncemq.config.build.importing import import_object
from oncemq.config.build.shared_parts import Reporter
from oncemq.config.model.consumer_settings import ConsumerSettings, RetryRule
from oncemq.config.model.fields import WrongValue, exception
from oncemq.config.model.shared_sections import Retry
from oncemq.config.model.validate import field_names
from oncemq.errors import InfrastructureError, MessageRefused, Signal
from oncemq.retry.backoff import RetryPolicy

_NEVER_ASKED = (Signal, MessageRefused, InfrastructureError)
"""Exceptions about which the framework decides before it asks for a rule."""


def with_rules(settled: ConsumerSettings, folder: Path, report: Reporter) -> RetryPolicy:
    """Return the consumer's policy with its rules by exception; those that are unusable are reported."""
    rules: dict[type[BaseException], RetryPolicy] = {}
    for rule in settled.retry_rules:
        try:
            kind = _class_of(rule.error, folder)
        except WrongValue as error:
            report.error(rule.path, error)
            continue
        if kind in rules:
            report.at(
                rule.path, f"{settled.name}: there are two rules for {kind.__name__}", "keep one of them"
            )
        for problem in _useless(kind, rule, settled):
            report.note(
                rule.path, Problem(f"{settled.name}: {problem.text}", problem.advice, "", problem.severity)
            )
        rules.setdefault(kind, rule.policy)
    return replace(settled.retry, by_error=tuple(rules.items()))


def _class_of(name: Any, folder: Path) -> type[BaseException]:
    found = exception(name)
    if isinstance(found, str):
        found = _named(found, folder)
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        raise WrongValue(f"{name!r} is not a class of exceptions", "name a class that can be raised")
    return found


def _named(name: str, folder: Path) -> Any:
    if ":" in name:
        return import_object(name, folder)
    module, _dot, attribute = name.rpartition(".")
    if module:
        return import_object(f"{module}:{attribute}", folder)
    if hasattr(builtins, name):
        return getattr(builtins, name)
    fields = get_close_matches(name, field_names(Retry), n=1, cutoff=0.6)
    raise WrongValue(
        f"there is no built-in exception {name!r}",
        f"did you mean {fields[0]!r}?" if fields else "write module:Class for one of your own",
    )


def _useless(kind: type[BaseException], rule: RetryRule, settled: ConsumerSettings) -> Iterator[Problem]:
    if issubclass(kind, _NEVER_ASKED):
        yield Problem(
            f"the rule for {kind.__name__} can never apply: OnceMQ decides about this error itself",
            "remove it",
            severity=Severity.WARNING,
        )
    elif rule.policy == settled.retry:
        yield Problem(
            f"the rule for {kind.__name__} changes nothing: it says the same as retry: itself",
            "remove it, or write what differs",
            severity=Severity.WARNING,
        )
