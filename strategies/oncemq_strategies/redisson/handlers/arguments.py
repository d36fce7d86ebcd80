"""Fills handler parameters such as `Annotated[Lock, "stock-{key}"]`, and says what a handler has left locked."""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from oncemq.contracts.arguments import Argument, AskedArgument
from oncemq.contracts.unit import Item, Run
from oncemq.errors import HandlerFault
from oncemq.message.identity import canonical_text
from oncemq.redis import RedisClient
from oncemq_strategies.common.name_template import NameTemplate
from oncemq_strategies.redisson.handlers.async_calls import ShortCalls
from oncemq_strategies.redisson.handlers.outside import HandlerLock, Kind

_log = logging.getLogger(__name__)
_SAID_EVERY = 60.0


class Leaves(Protocol):
    """What a handler gets, as it is at the handler's end."""

    def give_up(self) -> str | None:
        """Release all that its owner holds; return what that was in words, None if nothing. Never raises."""
        ...


Made = TypeVar("Made", bound=Leaves)


class Owner(str):
    """The owner of what one call of a handler acquires.

    Attributes:
        on_loop: the handler is a coroutine function, whose event loop must not be blocked.
    """

    __slots__ = ("on_loop",)

    on_loop: bool


def argument_of(
    asked: AskedArgument,
    example: str,
    kind: Kind,
    make: Callable[[RedisClient, str, Owner, int | None], Made],
) -> Argument:
    """Return how a parameter is filled with what `make` returns.

    Every call of a handler is an owner of its own, also beside others in one thread: the locks of one message exclude the
    next message's.

    Args:
        asked: the parameter.
        example: an annotation, for the text of a refusal.
        kind: what it is.
        make: gets the app's client, the name, the owner and the number in the annotation, if any.

    Raises:
        ConfigError: the annotation has no name, or not a valid one, or the app has no Redis.
    """
    client = asked.scope.redis
    name, number = _name_and_number(asked, example)
    if client is None:
        asked.refuse('needs Redis: give the app redis: {url: "redis://localhost:6379/0"}')
    left = _Left(asked)

    def get(run: Run, item: Item) -> Made:
        owner = Owner(_owner_of(run, item))
        owner.on_loop = asked.is_async
        return make(client, name.of(run.unit, item.delivery), owner, number)

    async def end_async(made: Made) -> None:
        await client.shared(ShortCalls).result(partial(left.end, made), lambda _: None)

    outside = HandlerLock(client, name, kind)
    return Argument(get, end_async if asked.is_async else left.end, outside)


class _Left:
    """Releases what a handler has left locked, and says so at most once a minute for each parameter."""

    def __init__(self, asked: AskedArgument) -> None:
        self._asked = asked
        self._since = 0
        self._said_at: float | None = None

    def end(self, made: Leaves) -> None:
        words = made.give_up()
        if words is None:
            return
        self._since += 1
        if self._said_at is not None and time.monotonic() - self._said_at < _SAID_EVERY:
            return
        self._said_at, times, self._since = time.monotonic(), self._since, 0
        _log.warning(
            "handler %s ended and left its parameter %r locked: %s, released before the commit; use `with`, or the strategy "
            "redis_lock, which releases after the commit (%d times since this was last said)",
            self._asked.handler,
            self._asked.parameter,
            words,
            times,
        )


_OWNERS = "oncemq_strategies.redisson.handlers"


def _owner_of(run: Run, item: Item) -> str:
    """Return the owner of this call, the same for all of its parameters."""
    owners: dict[Item, str] = run.notes.setdefault(_OWNERS, {})
    return owners.setdefault(item, uuid4().hex)


def _name_and_number(asked: AskedArgument, example: str) -> tuple[NameTemplate, int | None]:
    texts = [mark for mark in asked.marks if isinstance(mark, str)]
    numbers = [mark for mark in asked.marks if isinstance(mark, int) and not isinstance(mark, bool)]
    if len(texts) != 1 or len(numbers) > 1:
        asked.refuse(f"has no name: write {example}")
    try:
        return NameTemplate(texts[0], asked.scope.expression, _spelled), numbers[0] if numbers else None
    except ValueError as error:
        asked.refuse(f"has the name {texts[0]!r}: {error}; write {example}")


def _spelled(value: Any, field: str) -> str:
    return canonical_text(value, f"{field} in the name of a lock")


def refuse_on_loop(made: object, owner: str | None) -> None:
    """Raise HandlerFault where an async handler would stop its event loop by waiting for what it got.

    The holder may be another handler of the same loop, which could then never release it.
    """
    if isinstance(owner, Owner) and owner.on_loop:
        raise HandlerFault(
            f"{made!r} would block the event loop of an async handler: write async with, or acquire_async"
        )
