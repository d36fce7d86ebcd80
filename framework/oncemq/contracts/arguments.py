"""Types that fill a handler's parameters themselves: what they are told about a parameter, and what they answer.

A class with a class method `__oncemq_argument__` is passed to handlers that request it by annotation: the method is called
once at start for each such parameter with an `AskedArgument`, and returns an `Argument` or raises a ConfigError by
`AskedArgument.refuse`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol

from oncemq.contracts.strategy import HeldLocks
from oncemq.contracts.unit import Item, Run
from oncemq.errors import ConfigError, RedisRefused
from oncemq.message.expressions import Expression
from oncemq.redis.client import RedisClient

FILLS: Final = "__oncemq_argument__"
"""The class method's name."""


@dataclass(frozen=True, slots=True)
class ArgumentScope:
    """What the app has for such parameters.

    Args:
        expression: compiles an expression such as `body.status`.
        redis: the app's Redis, shared by all of the process; None without one.
    """

    expression: Callable[[str], Expression]
    redis: RedisClient | None = None


@dataclass(frozen=True, slots=True)
class AskedArgument:
    """One parameter that requests such a type.

    Args:
        handler: the handler's name, `module:function`.
        parameter: the parameter's name.
        marks: what follows the type in `Annotated[…]`.
        is_async: the handler is a coroutine function.
        scope: what the app has.
    """

    handler: str
    parameter: str
    marks: tuple[Any, ...]
    is_async: bool
    scope: ArgumentScope

    def refuse(self, text: str) -> NoReturn:
        """Raise a ConfigError about this parameter; `text` says why it cannot be filled and what to write."""
        raise ConfigError([f"handler {self.handler}: its parameter {self.parameter!r} {text}"])


class Outside(Protocol):
    """What a parameter locks outside the database: for the dashboard, and for `oncemq check --connect`."""

    def locks(self, most: int) -> HeldLocks:
        """Return what is held now by such names, as `Strategy.locks`."""
        ...

    def missing_in_redis(self) -> Iterable[RedisRefused]:
        """Yield the permissions that the Redis user lacks, as `RedisStrategy.missing_in_redis`."""
        ...


@dataclass(frozen=True, slots=True)
class Argument:
    """How such a parameter is filled.

    Args:
        get: returns the value for one call of the handler.
        end: called with that value when the handler has ended, in whatever way, and before its transaction commits; must not
            raise. For a coroutine function it returns an awaitable.
        outside: what it locks outside the database; None if nothing.
    """

    get: Callable[[Run, Item], Any]
    end: Callable[[Any], Any] | None = None
    outside: Outside | None = None
