"""Idempotent calls: a decorator for functions that answer RPC, or run a job by its number."""

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json
from sqlalchemy.orm import Session

from oncemq.common.problems import Problem
from oncemq.contracts.checks import Effects
from oncemq.engine.base.open_units import inside
from oncemq.engine.transaction.caller_transaction import CallerTransaction
from oncemq.errors import AnswerNotKept, ConfigError, InvalidKey, MissingKey, Reject, RequestKeyInvalid, Retry
from oncemq.idempotent_requests.answer import REFUSE, Abandoned, Answer, Finding
from oncemq.idempotent_requests.attempt import DatabaseTry, ExternalTry, Try
from oncemq.idempotent_requests.handler_session import off_loop
from oncemq.idempotent_requests.http import digest_of, identity_of
from oncemq.idempotent_requests.ledger import RequestLedger
from oncemq.idempotent_requests.safety_checks import switched_off
from oncemq.ledger.records.requests import State
from oncemq.message.canonical import NotCanonical, canonical, digest
from oncemq.message.identity import canonical_text

Function = TypeVar("Function", bound=Callable[..., Any])
Written = TypeVar("Written", str, bytes)


class MissingKeyPolicy(StrEnum):
    """What to do with a call that has no key."""

    REFUSE = "refuse"
    RUN = "run"


def idempotent(
    ledger: RequestLedger,
    *,
    key: Callable[..., Any],
    fingerprint: Callable[..., Any] | None = None,
    effects: Effects | str = Effects.DATABASE,
    abandoned: Abandoned | Callable[..., Any] = REFUSE,
    name: str | None = None,
    missing_key: MissingKeyPolicy | str = MissingKeyPolicy.REFUSE,
    on_copy: Callable[..., Any] | None = None,
) -> Callable[[Function], Function]:
    """Make a function take effect once per key; a copy of a call gets the first call's result.

    With `effects="database"` the function has one parameter annotated `Session`, which callers do not pass: its writes
    commit together with the result. The result is kept as JSON and returned in the type of the
    function's return annotation. Exceptions are not kept: nothing has been done then, and the call may be
    repeated – or, with external effects, is refused as `OutcomeUnknown`, unless it was a Reject or Retry.

    Args:
        ledger: stores calls.
        key: of the same arguments; returns text, an integer, or several of them.
        fingerprint: of the same arguments; returns anything JSON can hold. Default: all arguments. Compared by value:
            the order of fields and of sets, 1.0 for 1 and another spelling of a time make no difference.
        effects: `database`, or `external` for effects anywhere else; only those may be `async def`.
        abandoned: for external effects: `REFUSE`, `RUN_AGAIN`, or a function of the same arguments that returns
            `Answer(None, body=…)` with the result as JSON, `NOT_DONE` or `UNKNOWN`.
        name: of the operation, in the ledger; the function's module and name unless given.
        missing_key: what to do where `key` returns None: `refuse`, or `run` – the function runs
            unprotected, so its copies run, too. A key that cannot be used is refused in both cases.
        on_copy: of the stored result and the same arguments; returns what a copy gets instead of it.
            What it raises, the copy's caller gets; the stored result stays.

    With the environment variable `ONCEMQ_IDEMPOTENCY=off`, for unit tests, every call runs, without a record. A test may
    then pass a session of its own by keyword; else the function gets one of the ledger's database, which is committed.

    The decorated function raises:
        RequestKeyInvalid: there is no usable key.
        RequestConflict: the key was used before, with another fingerprint.
        RequestInProgress: the same call is in progress; says when to retry.
        OutcomeUnknown: an earlier call may have taken effect.
        AnswerNotKept: its result cannot be kept as JSON, or not be read by the present return annotation. Its `executed` says
            whether the call has taken effect.
        InfrastructureError: the database does not answer; nothing has been done.
    """

    def decorate(function: Function) -> Function:
        call = _Call(ledger, function, key, fingerprint, Effects(effects), abandoned, name)
        call.missing_key, call.on_copy = _policy(missing_key), on_copy
        if inspect.iscoroutinefunction(on_copy):
            text = f"`on_copy` of {call.name} is async: what a copy gets is decided at once"
            raise ConfigError([Problem(text, "write def instead of async def", "on_copy")])
        wrapped = call.as_coroutine() if call.is_async else call.as_function()
        functools.update_wrapper(wrapped, function)
        wrapped.__signature__ = call.signature  # type: ignore[attr-defined]
        return wrapped  # type: ignore[return-value]

    return decorate


@dataclass(frozen=True, slots=True)
class _Begun:
    """A call to run: its try, and its arguments."""

    attempt: Try
    given: inspect.BoundArguments


class _Call:
    """A decorated function and the identity of its calls."""

    def __init__(
        self,
        ledger: RequestLedger,
        function: Callable[..., Any],
        key: Callable[..., Any],
        fingerprint: Callable[..., Any] | None,
        effects: Effects,
        abandoned: Abandoned | Callable[..., Any],
        name: str | None,
    ) -> None:
        self._ledger, self._function, self._key = ledger, function, key
        self._fingerprint, self._abandoned = fingerprint, abandoned
        self.name = name or f"{function.__module__}.{function.__qualname__}"
        self._exposed = effects is Effects.EXTERNAL
        self.missing_key = MissingKeyPolicy.REFUSE
        self.on_copy: Callable[..., Any] | None = None
        self.is_async = inspect.iscoroutinefunction(function)
        hints = get_type_hints(function)
        self._session = _session_parameter(hints)
        self._asynchronous = _takes_async_session(hints)
        self._whole = inspect.signature(function)
        parameters = [
            parameter for parameter in self._whole.parameters.values() if parameter.name != self._session
        ]
        self.signature = self._whole.replace(parameters=parameters)
        self._result: TypeAdapter[Any] = TypeAdapter(hints.get("return", Any))
        self._refuse_unsafe(effects)

    def as_function(self) -> Callable[..., Any]:
        """Return the protected function."""

        def call(*arguments: Any, **named: Any) -> Any:
            if switched_off():
                return self._unprotected(arguments, named)
            begun = self._begin(arguments, named)
            if begun is None:
                return self._unprotected(arguments, named)
            if not isinstance(begun, _Begun):
                return self._copied(begun, arguments, named)
            try:
                given = self._lent(begun)
                with inside(lambda: begun.attempt.session is not None):
                    result = self._function(*given.args, **given.kwargs)
            except BaseException as error:
                self._failed(begun.attempt, error)
                raise
            begun.attempt.answered(self._answer(begun.attempt, result))
            return result

        return call

    def as_coroutine(self) -> Callable[..., Any]:
        """Return the protected coroutine function; ledger calls run in threads."""

        async def call(*arguments: Any, **named: Any) -> Any:
            if switched_off():
                return await self._function(*arguments, **named)
            begun = await off_loop(lambda: self._begin(arguments, named), undo=_undo)
            if begun is None:
                return await self._function(*arguments, **named)
            if not isinstance(begun, _Begun):
                return self._copied(begun, arguments, named)
            try:
                result = await self._function(*begun.given.args, **begun.given.kwargs)
            except BaseException as error:
                failure = error
                await off_loop(lambda: self._failed(begun.attempt, failure))
                raise
            await off_loop(lambda: begun.attempt.answered(self._answer(begun.attempt, result)))
            return result

        return call

    def _begin(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> _Begun | Answer | None:
        """Return the call to run, its stored result, or None: it has no key and runs unprotected."""
        given = self.signature.bind(*arguments, **named)
        try:
            identity = self._identity(arguments, named)
        except MissingKey as error:
            if self.missing_key is MissingKeyPolicy.RUN:
                return None
            raise RequestKeyInvalid(str(error)) from None
        state = State.EXPOSED if self._exposed else State.RUNNING
        abandoned = self._abandoned
        recovery = abandoned if isinstance(abandoned, Abandoned) else lambda: abandoned(*arguments, **named)
        found = self._ledger.admit(
            identity,
            digest(self._content(given, arguments, named, canonical)),
            state,
            recovery,
            earlier=lambda: digest_of(self._content(given, arguments, named, to_json)),
        )
        if isinstance(found, Answer):
            return found
        attempt: Try = ExternalTry(self._ledger, found) if self._exposed else DatabaseTry(self._ledger, found)
        attempt.open()
        return _Begun(attempt, given)

    def _identity(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> str:
        try:
            found = self._key(*arguments, **named)
            parts = found if isinstance(found, tuple | list) else (found,)
            texts = [canonical_text(part, f"the key of {self.name}") for part in parts or (None,)]
            return identity_of([f"call {self.name}", *texts])
        except InvalidKey as error:
            raise RequestKeyInvalid(str(error)) from None

    def _content(
        self,
        given: inspect.BoundArguments,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        written: Callable[[Any], Written],
    ) -> Written:
        if self._fingerprint is not None:
            content = self._fingerprint(*arguments, **named)
        else:
            given.apply_defaults()
            content = given.arguments
        try:
            return written(content)
        except (PydanticSerializationError, NotCanonical) as error:
            text = f"the arguments of {self.name} cannot be compared: {error}"
            raise ConfigError([Problem(text, "say with `fingerprint=` what tells two calls apart")]) from None

    def _unprotected(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Run the function without a record, in a transaction of its own unless a session was passed."""
        if self._session is None or self._session in named:
            return self._function(*arguments, **named)
        given = self.signature.bind(*arguments, **named)
        transaction = CallerTransaction(self._ledger.engine)
        try:
            lent = OrderedDict({**given.arguments, self._session: transaction.session})
            bound = inspect.BoundArguments(self._whole, lent)
            result = self._function(*bound.args, **bound.kwargs)
        except BaseException:
            transaction.roll_back()
            raise
        transaction.finish()
        return result

    def _copied(self, answer: Answer, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        result = self._restored(answer)
        return result if self.on_copy is None else self.on_copy(result, *arguments, **named)

    def _lent(self, begun: _Begun) -> inspect.BoundArguments:
        lent = {} if self._session is None else {self._session: begun.attempt.session}
        return inspect.BoundArguments(self._whole, OrderedDict({**begun.given.arguments, **lent}))

    def _answer(self, attempt: Try, result: Any) -> Answer:
        try:
            return Answer(None, body=self._result.dump_json(result, warnings="error"))
        except (PydanticSerializationError, ValueError) as error:
            if self._exposed:
                return Answer(None, body=None)
            attempt.failed()
            text = f"nothing was done by this call of {self.name}: its result cannot be kept as JSON: {error}"
            raise AnswerNotKept(text, executed=False) from error

    def _restored(self, answer: Answer) -> Any:
        if answer.body is None:
            raise AnswerNotKept(
                f"this call of {self.name} has taken effect; its result could not be kept as JSON"
            )
        try:
            return self._result.validate_json(answer.body)
        except ValidationError as error:
            raise AnswerNotKept(
                f"this call of {self.name} has taken effect; its result was kept, but does not fit the function's present "
                f"return annotation: {error}"
            ) from error

    def _failed(self, attempt: Try, error: BaseException) -> None:
        if isinstance(error, Reject | Retry):
            attempt.undone()  # the function reports that nothing happened
        else:
            attempt.failed()

    def _refuse_unsafe(self, effects: Effects) -> None:
        problems = []
        if effects is Effects.DATABASE and self._asynchronous:
            text = f"{self.name} takes an AsyncSession: effect and record commit together in a plain Session only"
            advice = 'write def and `session: Session`, and call it in a thread; or write effects="external"'
            problems.append(Problem(text, advice))
        elif effects is Effects.DATABASE and self._session is None:
            text = f"{self.name} takes no Session, so its effects cannot commit with their record"
            problems.append(Problem(text, 'add a parameter `session: Session`, or write effects="external"'))
        if effects is Effects.EXTERNAL and self._session is not None:
            text = f"{self.name} takes a Session, but its effects are external"
            problems.append(Problem(text, 'leave out effects="external", or the parameter'))
        if effects is Effects.DATABASE and self.is_async:
            text = f"{self.name} is async: database work would stop the event loop"
            problems.append(Problem(text, 'write def instead of async def, or effects="external"'))
        if (effects is Effects.DATABASE and self._abandoned is not REFUSE) or isinstance(
            self._abandoned, Finding
        ):
            problems.append(
                Problem(f"`abandoned` of {self.name} cannot be {self._abandoned}", "leave it out")
            )
        if problems:
            raise ConfigError(problems)


def _policy(given: MissingKeyPolicy | str) -> MissingKeyPolicy:
    if given not in set(MissingKeyPolicy):
        raise ConfigError(
            [Problem(f"missing_key {given!r} is not known", "write 'refuse' or 'run'", "missing_key")]
        )
    return MissingKeyPolicy(given)


def _undo(begun: _Begun | Answer | None) -> None:
    if isinstance(begun, _Begun):
        begun.attempt.undone()


def _session_parameter(hints: dict[str, Any]) -> str | None:
    named = [name for name, hint in hints.items() if name != "return" and hint is Session]
    return named[0] if named else None


def _takes_async_session(hints: dict[str, Any]) -> bool:
    """Return whether a parameter is an AsyncSession, or a subclass of it, without importing it."""
    return any(name != "return" and hasattr(hint, "sync_session_class") for name, hint in hints.items())
