"""Binds a handler: each argument is filled by its annotation, resolved once at start."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from types import CoroutineType, MappingProxyType
from typing import Any, Final

from oncemq.contracts.arguments import ArgumentScope, Outside
from oncemq.contracts.checks import Effects
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import Culprits, reject
from oncemq.errors import HandlerFault, MessageRefused
from oncemq.handler.batch import Batch
from oncemq.handler.payload import Validate
from oncemq.handler.signature import (
    PAYLOAD,
    SESSION,
    Filled,
    Getter,
    Share,
    Signature,
    read_signature,
)


@dataclass(frozen=True, slots=True)
class BoundHandler:
    """A user's function with its arguments resolved.

    Args:
        name: `module:function`, for logs and errors.
        call: runs it for one item; a coroutine for an async handler.
            Raises InvalidPayload when the body does not match the annotation.
        is_async: the function is a coroutine function.
        wants_session: it requests the Session, so its effects are in the database.
        is_batch: it accepts a `Batch[...]`; then `call_batch` is used instead of `call`.
        publishes: it requests a Publisher.
        call_batch: runs it once for several items, in order. Raises Culprits, before the handler runs, with a
            Reject for each item whose body does not match the annotation.
        payload: the annotation of the payload, with routes one of several; None if any body is valid.
        routes: the handlers that it chooses from by a value in the message; empty if it is a single one.
        takes_payload: a parameter receives the body, or the payload made of it.
        outside: what its parameters lock outside the database.
    """

    name: str
    call: Callable[[Run, Item], Any]
    is_async: bool = False
    wants_session: bool = False
    is_batch: bool = False
    publishes: bool = False
    call_batch: Callable[[Run, list[Item]], Any] | None = None
    payload: Any = None
    routes: "tuple[BoundHandler, ...]" = ()
    takes_payload: bool = True
    outside: tuple[Outside, ...] = ()

    @property
    def payloads(self) -> "tuple[Any, ...]":
        """Return the annotation of its payload, or those of its routes; without those for which any body is valid."""
        found = [route.payload for route in self.routes] if self.routes else [self.payload]
        return tuple(payload for payload in found if payload is not None)


def bind(
    function: Callable[..., Any],
    *,
    name: str,
    provided: Mapping[type, Getter],
    shared: Mapping[type, Share] = MappingProxyType({}),
    effects: Effects,
    body_format: str | None = None,
    upcast: Callable[[Item], Any] | None = None,
    arguments: ArgumentScope | None = None,
) -> BoundHandler:
    """Resolve a handler's parameters by their annotations.

    The first parameter with no other meaning is the payload; without annotation it receives the decoded body.
    `Session`, `Envelope` and the types of `provided` and `shared` are passed wherever they are requested. A parameter
    that has a default and requests nothing known keeps its default.

    Args:
        function: a function, method, partial or object with `__call__`.
        name: `module:function`, for logs and errors.
        provided: arguments for one message, by the type that requests them.
        shared: arguments for a whole run, also for batch handlers; for one message `provided` takes precedence.
        effects: where the handler's effects live.
        body_format: the topic's format, if known; a payload type that it can never produce is then refused.
        upcast: returns the body that the handler gets; None = as it came.
        arguments: for types that fill parameters themselves; None where they may not.

    Raises:
        ConfigError: the parameters cannot be filled; names the parameter and the correction.
    """
    signature = read_signature(function, name, provided, shared, effects, body_format, arguments)
    if upcast is not None:
        signature = signature.upcasting(upcast)
    wants_session, publishes = signature.asks_for(SESSION), signature.publishes
    if signature.is_batch:
        call_batch = _batch_call(function, signature, name)
        return BoundHandler(
            name,
            lambda run, item: call_batch(run, [item]),
            signature.is_async,
            is_batch=True,
            wants_session=wants_session,
            publishes=publishes,
            call_batch=call_batch,
            payload=signature.payload,
            outside=signature.outside,
        )
    ends = any(filled.end is not None for filled in signature.parameters)
    call = (_ending_call if ends else _item_call)(function, signature)
    if not signature.is_async:
        call = _finished(call, name)
    return BoundHandler(
        name,
        call,
        signature.is_async,
        wants_session,
        publishes=publishes,
        payload=signature.payload,
        takes_payload=signature.asks_for(PAYLOAD),
        outside=signature.outside,
    )


def _item_call(function: Callable[..., Any], signature: Signature) -> Callable[[Run, Item], Any]:
    """Return the cheapest closure for the handler's shape: it is called for every message."""
    positional = [filled for filled in signature.parameters if not filled.keyword]
    getters = [filled.get for filled in positional]
    keywords = [(filled.name, filled.get) for filled in signature.parameters if filled.keyword]
    if keywords:
        return lambda run, item: function(
            *[get(run, item) for get in getters], **{word: get(run, item) for word, get in keywords}
        )
    roles = tuple(filled.role for filled in positional)
    if signature.validate is not None and roles == (PAYLOAD,):
        validate = signature.validate
        return lambda _, item: function(validate(item.payload))
    if signature.validate is not None and roles == (PAYLOAD, SESSION) and not signature.is_async:
        return _with_session(function, signature.validate)
    if len(getters) == 1:
        (only,) = getters
        return lambda run, item: function(only(run, item))
    if len(getters) == 2:
        first, second = getters
        return lambda run, item: function(first(run, item), second(run, item))
    return lambda run, item: function(*[get(run, item) for get in getters])


_Ends = list[tuple[Callable[[Any], Any], Any]]
"""What is called when a handler has ended, each with its value."""


def _ending_call(function: Callable[..., Any], signature: Signature) -> Callable[[Run, Item], Any]:
    """Return the closure for a handler some of whose arguments end with it."""
    parameters = signature.parameters

    def begun(run: Run, item: Item) -> tuple[Callable[[], Any], _Ends]:
        values = [(filled, filled.get(run, item)) for filled in parameters]
        positional = [value for filled, value in values if not filled.keyword]
        keywords = {filled.name: value for filled, value in values if filled.keyword}
        ends = [(filled.end, value) for filled, value in values if filled.end is not None]
        return partial(function, *positional, **keywords), ends

    def call(run: Run, item: Item) -> Any:
        work, ends = begun(run, item)
        try:
            return work()
        finally:
            for end, value in ends:
                end(value)

    return (lambda run, item: _awaited(*begun(run, item))) if signature.is_async else call


async def _awaited(work: Callable[[], Any], ends: _Ends) -> Any:
    try:
        return await work()
    finally:
        for end, value in ends:
            await end(value)


def _with_session(function: Callable[..., Any], validate: Validate) -> Callable[[Run, Item], Any]:
    return lambda run, item: function(validate(item.payload), run.session)


def _finished(call: Callable[[Run, Item], Any], name: str) -> Callable[[Run, Item], Any]:
    """Wrap a sync call so that an async function behind a sync decorator is not mistaken for a completed call."""

    def checked(run: Run, item: Item) -> Any:
        result = call(run, item)
        return None if result is None else _settled(result, name)

    return checked


_LAZY: Final = (Iterator, AsyncIterator, Awaitable, Future)
"""Returned instead of a result when the work has not been done yet."""


def _settled(result: Any, name: str) -> Any:
    if not isinstance(result, _LAZY):
        return result
    close = getattr(result, "close", None)
    if callable(close):
        close()
    if isinstance(result, CoroutineType):
        what = "a coroutine that is never awaited, so it did nothing: make its decorator async too, or the handler a plain function"
    elif isinstance(result, Iterator | AsyncIterator):
        what = f"{type(result).__name__}, which nothing reads, so it did nothing: return a value instead of yielding"
    else:
        what = f"{type(result).__name__}, whose work nothing waits for: do the work before returning, or wait for its result"
    raise HandlerFault(f"handler {name} returned {what}")


def _batch_call(
    function: Callable[..., Any], signature: Signature, name: str
) -> Callable[[Run, list[Item]], Any]:
    validate, parameters, read = signature.validate, signature.parameters, signature.read
    if read is None and validate is not None:
        read = lambda item: validate(item.payload)  # noqa: E731 - one frame less than a function around it

    def call_batch(run: Run, items: list[Item]) -> Any:
        payloads = [item.payload for item in items] if read is None else _validated(items, read)
        batch = Batch(payloads, [item.envelope for item in items])
        values = {filled: _batch_value(filled, run, batch) for filled in parameters}
        positional = [value for filled, value in values.items() if not filled.keyword]
        keywords = {filled.name: value for filled, value in values.items() if filled.keyword}
        answer = function(*positional, **keywords)
        return answer if signature.is_async else _settled(answer, name)

    return call_batch


def _batch_value(filled: Filled, run: Run, batch: Batch[Any]) -> Any:
    if filled.role == PAYLOAD:
        return batch
    return run.session if filled.share is None else filled.share(run)


def _validated(items: list[Item], read: Callable[[Item], Any]) -> list[Any]:
    payloads, verdicts = [], {}
    for item in items:
        try:
            payloads.append(read(item))
        except MessageRefused as error:
            verdicts[item] = reject(str(error), error=error, code=error.reason)
    if verdicts:
        raise Culprits(verdicts)
    return payloads
