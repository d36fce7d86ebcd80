"""Translates the errors of RocketMQ's client into those of the framework, at the border of each adapter.

Inside, both kinds meet: the client raises its own, the ledger and what the adapters refuse themselves the framework's.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import isfunction, isgeneratorfunction
from typing import Any, Final, TypeVar

from oncemq.errors import BrokerError, BrokerRefused, BrokerUnavailable
from oncemq_adapters.rocketmq_client.errors import RocketMQError, RocketMQRefused, RocketMQUnavailable

FAILURES: Final = (BrokerError, RocketMQError)
REFUSALS: Final = (BrokerRefused, RocketMQRefused)
Failure = BrokerError | RocketMQError
Translated = TypeVar("Translated")


def as_broker_error(error: Failure) -> BrokerError:
    """Return the framework's error for one of the client's, which it was caused by; its own as they are."""
    if isinstance(error, BrokerError):
        return error
    kind = BrokerUnavailable if isinstance(error, RocketMQUnavailable) else BrokerRefused
    translated = kind(str(error))
    translated.__cause__ = error
    return translated


def translating(adapter: type[Translated]) -> type[Translated]:
    """Have every public method that a class defines raise the framework's errors in place of the client's."""
    for name, method in list(vars(adapter).items()):
        if isfunction(method) and not name.startswith("_"):
            wrap = _translating_each if isgeneratorfunction(method) else _translating
            setattr(adapter, name, wrap(method))
    return adapter


def behind(error: Exception) -> BrokerError:
    """Return the error of a message that was not sent because an earlier one of its key is not stored."""
    kind = BrokerUnavailable if isinstance(error, BrokerUnavailable) else BrokerRefused
    return kind(f"not sent, so as not to overtake an earlier message of its key: {error}")


def _translating(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except RocketMQError as error:
            raise as_broker_error(error) from error

    return call


def _translating_each(method: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    @wraps(method)
    def call(*arguments: Any, **named: Any) -> Iterator[Any]:
        try:
            yield from method(*arguments, **named)
        except RocketMQError as error:
            raise as_broker_error(error) from error

    return call
