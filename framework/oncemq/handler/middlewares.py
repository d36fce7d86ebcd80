"""Middlewares: user code around handler calls, after commits and at publishing, each called exactly as documented."""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from sqlalchemy.orm import Session

from oncemq.common.error_text import describe
from oncemq.common.problems import Problem, Severity
from oncemq.contracts.checks import UnitKind
from oncemq.contracts.strategy import Strategy, Traits
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import PROCEED
from oncemq.errors import ConfigError, HandlerFault
from oncemq.handler.binding import BoundHandler
from oncemq.message.envelope import Envelope
from oncemq.message.outgoing import OnPublish

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

HOOKS: Final = ("around", "around_async", "after_commit", "on_publish")
_HOOK_LIKE: Final = ("around", "after_", "on_")

_NEW, _RUNNING, _RETURNED, _RAISED, _TWICE = range(5)


class HandlerCall:
    """One call of a handler, as a middleware's `around` sees it.

    Attributes:
        consumer: the consumer's name.
        envelopes: of the messages that the call is for: one, or all of a `Batch`.
    """

    __slots__ = ("_run", "consumer", "envelopes")

    def __init__(self, consumer: str, envelopes: tuple[Envelope, ...], run: Run | None) -> None:
        self.consumer = consumer
        self.envelopes = envelopes
        self._run = run

    def __repr__(self) -> str:
        return f"<HandlerCall of {self.consumer} for {len(self.envelopes)}>"

    @property
    def envelope(self) -> Envelope:
        """The message's envelope.

        Raises:
            LookupError: the handler takes a `Batch`, and this one has several messages.
        """
        if len(self.envelopes) != 1:
            raise LookupError(
                f"this call of {self.consumer} is for {len(self.envelopes)} messages: read envelopes"
            )
        return self.envelopes[0]

    @property
    def session(self) -> Session:
        """The handler's Session: what is written with it is committed or rolled back with the handler's work.

        Raises:
            LookupError: the handler's effects are external, or its call is over.
        """
        return self._open().session

    @property
    def async_session(self) -> "AsyncSession":
        """The same for a handler that is `async def`.

        Raises:
            LookupError: as `session`.
        """
        from oncemq.handler.async_session import async_session_of  # noqa: PLC0415 - needs greenlet

        return async_session_of(self._open())

    def _open(self) -> Run:
        run = self._run
        if run is None:
            raise LookupError(f"the call of {self.consumer} is over, and its session with it")
        if run.direct:
            raise LookupError(f"effects of {self.consumer} are external, so its middlewares have no session")
        return run


@dataclass(frozen=True, slots=True)
class AppliedMessage:
    """A message whose handler has taken effect, as a middleware's `after_commit` sees it.

    Args:
        consumer: the consumer's name.
        envelope: the message's envelope.
        result: what the handler returned; None for a handler of batches.
    """

    consumer: str
    envelope: Envelope
    result: Any


@dataclass(frozen=True, slots=True)
class Middleware:
    """The hooks of one middleware.

    Args:
        name: `module:Class`, for errors.
        around: called with the call and its HandlerCall around each call of a handler that is a function.
        around_async: the same for coroutine functions.
        after_commit: called with an AppliedMessage.
        on_publish: called with a Publishing.
    """

    name: str
    around: Callable[[Callable[[], Any], HandlerCall], Any] | None = None
    around_async: Callable[[Callable[[], Awaitable[Any]], HandlerCall], Awaitable[Any]] | None = None
    after_commit: Callable[[AppliedMessage], Any] | None = None
    on_publish: OnPublish | None = None


def middleware_of(found: Any, name: str) -> Middleware:
    """Return the hooks of a middleware; a class is called without arguments.

    Args:
        found: a class or an object with at least one of the hooks.
        name: `module:Class`.

    Raises:
        ConfigError: it is none; says what to write.
    """
    instance = _instance(found, name)
    hooks = {hook: getattr(instance, hook) for hook in HOOKS if hasattr(instance, hook)}
    if not hooks:
        raise ConfigError([Problem(f"middleware {name} has no hook", f"define one of {', '.join(HOOKS)}")])
    for hook, function in hooks.items():
        wrong = _wrong(hook, function)
        if wrong is not None:
            raise ConfigError([Problem(f"{hook} of middleware {name} {wrong[0]}", wrong[1])])
    return Middleware(name, **hooks)


def doubts(found: Any, name: str) -> Iterator[Problem]:
    """Yield what a middleware defines that looks like a hook and is none."""
    for other in dir(found):
        if other.startswith(_HOOK_LIKE) and other not in HOOKS:
            close = get_close_matches(other, HOOKS, n=1, cutoff=0.6)
            if close:
                yield Problem(
                    f"middleware {name} has {other!r}, which is never called",
                    f"did you mean {close[0]!r}?",
                    severity=Severity.WARNING,
                )


def _instance(found: Any, name: str) -> Any:
    if not isinstance(found, type):
        return found
    try:
        return found()
    except Exception as error:
        problem = Problem(
            f"middleware {name} cannot be made: {describe(error)}", "its class is called without arguments"
        )
        raise ConfigError([problem]) from error


def _wrong(hook: str, function: Any) -> tuple[str, str] | None:
    """Return what is wrong with a hook, and what to do; None if nothing is."""
    if not callable(function):
        return "is no method", f"write def {hook}(self, …), or rename it"
    if hook == "around_async":
        if not inspect.iscoroutinefunction(function):
            return "is no coroutine function", "write async def around_async(self, call, message)"
        return None
    if inspect.iscoroutinefunction(function):
        return "is a coroutine function, which nothing would await", (
            "name it around_async, for handlers that are async def" if hook == "around" else "write def"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "is a generator function, which nothing would iterate", "write return call() instead of yield"
    return None


def with_middlewares(handler: BoundHandler, middlewares: Sequence[Middleware], consumer: str) -> BoundHandler:
    """Return the handler with its middlewares around each call, the first one outermost; unchanged without any.

    Args:
        handler: the handler.
        middlewares: in the order written.
        consumer: the consumer's name.

    Raises:
        ConfigError: one is only around handlers of the other kind, sync or async.
    """
    wanted, other = ("around_async", "around") if handler.is_async else ("around", "around_async")
    chosen = []
    for middleware in middlewares:
        hook = getattr(middleware, wanted)
        if hook is not None:
            chosen.append((middleware.name, hook))
        elif getattr(middleware, other) is not None:
            kind = "async def" if handler.is_async else "a plain function"
            text = f"middleware {middleware.name} has {other}, but handler {handler.name} is {kind}"
            raise ConfigError([Problem(text, f"define {wanted}, too")])
    if not chosen:
        return handler
    first = handler.call if handler.call_batch is None else handler.call_batch
    inner: _Inner = lambda run, what, _message: first(run, what)  # noqa: E731 - one frame less than a method
    for name, hook in reversed(chosen):
        inner = (_AsyncLink if handler.is_async else _Link)(name, hook, inner).call
    call = _outermost(inner, consumer, is_async=handler.is_async, is_batch=handler.is_batch)
    if handler.call_batch is None:
        return replace(handler, call=call)
    return replace(handler, call_batch=call, call=lambda run, item: call(run, [item]))


def _outermost(
    inner: "_Inner", consumer: str, *, is_async: bool, is_batch: bool
) -> Callable[[Run, Any], Any]:
    """Return the call of a handler for an item, or for a list of them, which makes the HandlerCall."""

    def call(run: Run, item: Item) -> Any:
        message = HandlerCall(consumer, (item.envelope,), run)
        try:
            return inner(run, item, message)
        finally:
            message._run = None

    async def call_async(run: Run, what: Any) -> Any:
        items = what if is_batch else [what]
        message = HandlerCall(consumer, tuple(item.envelope for item in items), run)
        try:
            return await inner(run, what, message)
        finally:
            message._run = None

    def call_batch(run: Run, items: list[Item]) -> Any:
        message = HandlerCall(consumer, tuple(item.envelope for item in items), run)
        try:
            return inner(run, items, message)
        finally:
            message._run = None

    if is_async:
        return call_async
    return call_batch if is_batch else call


_Inner = Callable[[Run, Any, HandlerCall], Any]
"""Runs what is inside of a middleware, for an item or a list of items."""


class _Link:
    """One middleware around what is inside of it.

    Args:
        name: of the middleware.
        hook: its `around`, or `around_async`.
        inner: the next middleware, or the handler.
    """

    __slots__ = ("_hook", "inner", "name")

    def __init__(self, name: str, hook: Callable[..., Any], inner: _Inner) -> None:
        self.name = name
        self._hook = hook
        self.inner = inner

    def call(self, run: Run, what: Any, message: HandlerCall) -> Any:
        """Return the handler's own result.

        Raises:
            HandlerFault: the middleware did not call it exactly once, or swallowed its error.
            BaseException: raised by it, or by the middleware.
        """
        step = _Step(self, run, what, message)
        try:
            self._hook(step, message)
        except BaseException:
            step.error = None  # else its traceback would keep it alive
            raise
        if step.state is not _RETURNED:
            raise step.fault() from step.error
        return step.result


class _AsyncLink(_Link):
    """The same in a coroutine."""

    __slots__ = ()

    async def call(self, run: Run, what: Any, message: HandlerCall) -> Any:
        """Return the handler's own result; raises the same."""
        step = _AsyncStep(self, run, what, message)
        try:
            await self._hook(step, message)
        except BaseException:
            step.error = None
            raise
        if step.state is not _RETURNED:
            raise step.fault() from step.error
        return step.result


class _Step:
    """What a middleware is given to call, and whether it did.

    Attributes:
        state: how far it has come.
        error: raised by what is inside.
        result: returned by it.
    """

    __slots__ = ("_link", "_message", "_run", "_what", "error", "result", "state")

    def __init__(self, link: _Link, run: Run, what: Any, message: HandlerCall) -> None:
        self._link = link
        self._run = run
        self._what = what
        self._message = message
        self.state = _NEW
        self.error: BaseException | None = None
        self.result: Any = None

    def __call__(self) -> Any:
        if self.state:
            self._refuse()
        self.state = _RUNNING
        try:
            result = self.result = self._link.inner(self._run, self._what, self._message)
        except BaseException as error:
            self._raised(error)
            raise
        if self.state is _RUNNING:
            self.state = _RETURNED
        return result

    def _refuse(self) -> NoReturn:
        self.state = _TWICE
        raise self.fault()

    def _raised(self, error: BaseException) -> None:
        self.error = error
        if self.state is _RUNNING:
            self.state = _RAISED

    def fault(self) -> HandlerFault:
        """Return what the middleware did wrong."""
        return HandlerFault(f"middleware {self._link.name} {self._wrong()}")

    def _wrong(self) -> str:
        if self.state is _TWICE:
            return "called its handler twice, which would double its effects: raise Retry instead"
        if self.error is not None:
            return f"swallowed {describe(self.error)}: raise it again, or Reject or Retry"
        if self.state is _RUNNING:
            return "returned before its handler did: write await call()"
        return "did not call its handler: call it, or raise Reject or Retry"


class _AsyncStep(_Step):
    """The same in a coroutine."""

    __slots__ = ()

    async def __call__(self) -> Any:
        if self.state:
            self._refuse()
        self.state = _RUNNING
        try:
            result = self.result = await self._link.inner(self._run, self._what, self._message)
        except BaseException as error:
            self._raised(error)
            raise
        if self.state is _RUNNING:
            self.state = _RETURNED
        return result


class AfterCommit(Strategy):
    """Tells middlewares of each message that was applied, after the commit; the last step of a consumer's chain.

    Args:
        consumer: the consumer's name.
        middlewares: with `after_commit`, in the order written.
    """

    traits: ClassVar[Traits] = Traits(decides=False, kinds=frozenset(UnitKind))
    name = "middlewares"
    by_identity = True

    def __init__(self, consumer: str, middlewares: Sequence[Middleware]) -> None:
        self._consumer = consumer
        self._hooks = [
            (middleware.name, middleware.after_commit)
            for middleware in middlewares
            if middleware.after_commit is not None
        ]

    def committed(self, run: Run) -> None:
        """Tell all of them of all messages.

        Raises:
            HandlerFault: the first error of a middleware, after the others were told.
        """
        first: HandlerFault | None = None
        for item in run.items:
            if item.verdict is not PROCEED:
                continue
            message = AppliedMessage(self._consumer, item.envelope, item.result)
            for name, hook in self._hooks:
                try:
                    hook(message)
                except Exception as error:
                    if first is None:
                        text = f"after_commit of middleware {name} failed for key {item.key!r}: {describe(error)}"
                        first = HandlerFault(text)
                        first.__cause__ = error
        if first is not None:
            raise first
