"""Chooses one of several handlers by a value in the message."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final, Union

from oncemq.common.problems import Problem
from oncemq.contracts.unit import Item, Run
from oncemq.errors import ConfigError, InvalidPayload, UnknownRoute
from oncemq.handler.binding import BoundHandler
from oncemq.message.expressions import Expression, compile_expression
from oncemq.message.routed_reader import text_of

Call = Callable[[Run, Item], Any]
_SHOWN: Final = 60
_LISTED: Final = 20


def with_routes(
    routes: Mapping[str, BoundHandler],
    by: str,
    otherwise: BoundHandler | None,
    topic: str,
    *,
    ignore: bool = False,
) -> BoundHandler:
    """Return one handler that calls the one whose value the message has.

    Args:
        routes: handlers by the value's text; at least one.
        by: the expression of the value.
        otherwise: handles all other messages; None = they are rejected.
        topic: the topic's name, for errors.
        ignore: without `otherwise` all other messages count as applied, and no handler runs.

    Raises:
        ConfigError: a handler is for batches, or some are coroutine functions and others not.
    """
    handlers = [*routes.values()] if otherwise is None else [*routes.values(), otherwise]
    _require_alike(handlers)
    find = compile_expression(by)
    calls = {value: _named(value, handler.call) for value, handler in routes.items()}
    is_async = handlers[0].is_async
    other: Call = _Refusal(by, topic, tuple(routes))
    if otherwise is not None:
        other = otherwise.call
    elif ignore:
        other = (lambda _run, _item: _ignore_async()) if is_async else _ignore
    payloads = [handler.payload for handler in handlers]
    typed = None not in payloads and not (ignore and otherwise is None)
    return BoundHandler(
        f"routes by {by}",
        _dispatch(find, calls, other),
        is_async,
        wants_session=any(handler.wants_session for handler in handlers),
        publishes=any(handler.publishes for handler in handlers),
        payload=Union[tuple(payloads)] if typed else None,  # noqa: UP007 - as many as there are
        routes=tuple(handlers),
        outside=tuple(outside for handler in handlers for outside in handler.outside),
    )


def _dispatch(find: Expression, calls: Mapping[str, Call], other: Call) -> Call:
    """Return the call for an item; of a coroutine function the coroutine, unless there is no route."""

    def call(run: Run, item: Item) -> Any:
        value = find(item.delivery.message, item.payload)
        if type(value) is not str:
            value = text_of(value)
        return calls.get(value, other)(run, item)

    return call


class _Refusal:
    """Refuses a message for which there is no route."""

    def __init__(self, by: str, topic: str, known: tuple[str, ...]) -> None:
        self._by = by
        self._find = compile_expression(by)
        self._topic = topic
        self._known = known

    def __call__(self, _run: Run, item: Item) -> Any:
        value = self._find(item.delivery.message, item.payload)
        raise UnknownRoute(f"message {item.key!r} of topic {self._topic!r}: {self._why(value)}")

    def _why(self, value: Any) -> str:
        known = f"known are {', '.join(map(repr, self._known[:_LISTED]))}"
        if value is None:
            return f"it has no {self._by}, by which its handler is chosen; {known}"
        shown = text_of(value)[:_SHOWN]
        close = get_close_matches(shown, self._known, n=1, cutoff=0.6)
        hint = f"did you mean {close[0]!r}?" if close else known
        return f"no route for {self._by} {shown!r} – {hint}"


def _named(value: str, call: Call) -> Call:
    """Return the call of a route; a body that does not match its type is refused with the route's name.

    Also of a coroutine function: its arguments are validated before there is a coroutine.
    """

    def named(run: Run, item: Item) -> Any:
        try:
            return call(run, item)
        except InvalidPayload as error:
            raise InvalidPayload(f"route {value!r}: {error}") from None

    return named


def _ignore(_run: Run, _item: Item) -> None:
    """Do nothing."""


async def _ignore_async() -> None:
    """Do nothing."""


def _require_alike(handlers: list[BoundHandler]) -> None:
    for handler in handlers:
        if handler.is_batch:
            text = f"handler {handler.name}: it takes a Batch, whose messages may have several routes"
            raise ConfigError([Problem(text, "take one payload, or write a consumer without routes")])
    kinds = {handler.is_async: handler.name for handler in handlers}
    if len(kinds) == 2:
        text = f"handlers {kinds[False]} and {kinds[True]} are routes of one consumer, but only the latter is async def"
        raise ConfigError([Problem(text, "make all of them async def, or all def")])
