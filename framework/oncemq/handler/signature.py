"""Reads a handler's signature: how each parameter is filled, and every reason why it cannot be called."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Final, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from sqlalchemy.orm import Session

from oncemq.contracts.arguments import FILLS, Argument, ArgumentScope, AskedArgument, Outside
from oncemq.contracts.checks import Effects
from oncemq.contracts.publisher import Publisher
from oncemq.contracts.unit import Item, Run
from oncemq.errors import ConfigError
from oncemq.handler.batch import Batch
from oncemq.handler.payload import Validate, make_validate, type_name
from oncemq.message.envelope import Envelope

Found = TypeVar("Found")


def find_in(by_type: Mapping[type, Found], annotation: Any) -> Found | None:
    """Return what `by_type` holds for an annotation; `X | None` means X."""
    if get_origin(annotation) in {Union, UnionType}:
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        return find_in(by_type, kinds[0]) if len(kinds) == 1 else None
    for kind in (annotation, get_origin(annotation)):
        try:
            if kind is not None and kind in by_type:
                return by_type[kind]
        except TypeError:
            continue
    return None


def looks_like_session(annotation: Any) -> bool:
    """Return whether it requests a kind of session that cannot be provided."""
    kinds = [annotation, *get_args(annotation)]
    return any(
        isinstance(kind, type)
        and (issubclass(kind, Session) or kind.__name__ in {_ASYNC_SESSION, "scoped_session"})
        for kind in kinds
    )


_ASYNC_SESSION: Final = "AsyncSession"

Getter = Callable[[Run, Item], Any]
"""Provides the value of one parameter, for one item of one run."""

Share = Callable[[Run], Any]
"""Provides the value of one parameter, for all items of one run together."""

PAYLOAD: Final = "payload"
SESSION: Final = "session"
ENVELOPE: Final = "envelope"
PROVIDED: Final = "provided"


@dataclass(frozen=True, slots=True)
class Filled:
    """One parameter that the framework fills.

    Args:
        name: the parameter's name.
        role: PAYLOAD, SESSION, ENVELOPE or PROVIDED.
        get: provides its value.
        keyword: it can be passed by name only.
        share: provides its value in a batch; None where each message has its own value.
        end: called with the value when the handler has ended; None for a value that needs no end.
        outside: what it locks outside the database; None if nothing.
    """

    name: str
    role: str
    get: Getter
    keyword: bool
    share: Share | None = None
    end: Callable[[Any], Any] | None = None
    outside: Outside | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """A handler's parameters, resolved.

    Args:
        parameters: those to fill, in order.
        validate: converts the decoded body to the payload; None if any body is valid as it is.
        is_async: the handler is a coroutine function.
        is_batch: its payload is a `Batch`; `validate` applies to each of its payloads.
        publishes: it requests a `Publisher`.
        payload: the annotation of the payload, or of one payload of the batch; None if any body is valid.
        read: returns an item's payload; None where that is `validate` of its body.
    """

    parameters: tuple[Filled, ...]
    validate: Validate | None
    is_async: bool
    is_batch: bool
    publishes: bool
    payload: Any = None
    read: Callable[[Item], Any] | None = None

    def upcasting(self, upcast: Callable[[Item], Any]) -> "Signature":
        """Return the same signature with bodies that `upcast` has brought to the handler's version."""
        validate = self.validate

        def read(item: Item) -> Any:
            body = upcast(item)
            return body if validate is None else validate(body)

        parameters = tuple(
            replace(filled, get=lambda _, item: read(item)) if filled.role == PAYLOAD else filled
            for filled in self.parameters
        )
        return replace(self, parameters=parameters, validate=None, read=read)

    @property
    def outside(self) -> tuple[Outside, ...]:
        """What its parameters lock outside the database."""
        return tuple(filled.outside for filled in self.parameters if filled.outside is not None)

    def asks_for(self, role: str) -> bool:
        """Return whether any parameter has this role."""
        return any(parameter.role == role for parameter in self.parameters)


@dataclass(slots=True)
class _Asked:
    """One parameter while its signature is read; without `get` it keeps its default."""

    parameter: inspect.Parameter
    annotation: Any
    plain: Any
    role: str
    get: Getter | None
    share: Share | None = None
    end: Callable[[Any], Any] | None = None
    outside: Outside | None = None

    @property
    def has_default(self) -> bool:
        return self.parameter.default is not self.parameter.empty


@dataclass(slots=True)
class _Reading:
    """One handler while its signature is read."""

    name: str
    provided: Mapping[type, Getter]
    shared: Mapping[type, Share]
    effects: Effects
    body_format: str | None
    arguments: ArgumentScope | None
    asked: list[_Asked] = field(default_factory=list)
    filled: list[Filled] = field(default_factory=list)
    validate: Validate | None = None
    is_batch: bool = False
    is_async: bool = False
    payload: Any = None

    def refuse(self, text: str) -> NoReturn:
        raise ConfigError([f"handler {self.name}: {text}"])

    def known(self) -> str:
        names = [
            _ASYNC_SESSION if self.is_async else "Session",
            "Envelope",
            "Batch[…]",
            *map(type_name, {**self.provided, **self.shared}),
        ]
        return f"known besides one payload: {', '.join(names)}"


def read_signature(
    function: Any,
    name: str,
    provided: Mapping[type, Getter],
    shared: Mapping[type, Share],
    effects: Effects,
    body_format: str | None,
    arguments: ArgumentScope | None = None,
) -> Signature:
    """Resolve a handler's parameters; the arguments are those of `bind`.

    Raises:
        ConfigError: the parameters cannot be filled; names the parameter and the correction.
    """
    reading = _Reading(name, provided, shared, effects, body_format, arguments)
    is_async = reading.is_async = _require_plain_callable(function, reading)
    parameters = _parameters(function, reading)
    for parameter in parameters:
        reading.asked.append(_asked(parameter, _annotation(function, parameter, reading), reading))
    _choose_payload(reading)
    _fill(reading)
    if reading.is_batch:
        _require_batch(reading)
    publishes = any(find_in({Publisher: True}, asked.plain) for asked in reading.asked)
    return Signature(
        tuple(reading.filled), reading.validate, is_async, reading.is_batch, publishes, reading.payload
    )


def _require_plain_callable(function: Any, reading: _Reading) -> bool:
    """Refuse what is not a handler; return whether it is a coroutine function."""
    if not callable(function):
        reading.refuse(f"it is {type(function).__name__!r} and cannot be called: name a function")
    if inspect.isclass(function):
        reading.refuse(
            "it is a class, which a call would only construct: name a function or an instance's method"
        )
    code = code_of(function)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        reading.refuse("it is a generator, which a call would not run: write return instead of yield")
    return inspect.iscoroutinefunction(code)


def code_of(function: Any) -> Any:
    """Return the function that will run: behind partials, or an object's `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return type(function).__call__


def _parameters(function: Any, reading: _Reading) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        reading.refuse("its parameters cannot be read: wrap it in a function of your own")
    bound_by_name = function.keywords if isinstance(function, functools.partial) else {}
    for parameter in parameters:
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            reading.refuse(f"its parameter {parameter} could be anything: name the parameters that it needs")
    return [parameter for parameter in parameters if parameter.name not in bound_by_name]


def _annotation(function: Any, parameter: inspect.Parameter, reading: _Reading) -> Any:
    """Return the evaluated annotation; evaluated separately, so that an unused one elsewhere cannot make it fail."""
    if parameter.annotation is parameter.empty:
        return parameter.empty
    code = inspect.unwrap(code_of(function))
    holder = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    scope = getattr(code, "__globals__", {})
    try:
        return get_type_hints(holder, globalns=scope, include_extras=True)[parameter.name]
    except NameError as error:
        reading.refuse(
            f"the annotation of its parameter {parameter.name!r} names {error.name!r}, which its module does not "
            "define at run time: import it there, not only under TYPE_CHECKING"
        )
    except Exception as error:
        reading.refuse(f"the annotation of its parameter {str(parameter)!r} cannot be read: {error}")


def _asked(parameter: inspect.Parameter, annotation: Any, reading: _Reading) -> _Asked:
    plain, *marks = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    fills = getattr(plain, FILLS, None) if isinstance(plain, type) else None
    if fills is not None and find_in(reading.provided, plain) is None:
        found = _filled_by_itself(fills, parameter, tuple(marks), reading)
        return _Asked(parameter, annotation, plain, PROVIDED, found.get, end=found.end, outside=found.outside)
    role, get = _special(parameter, plain, reading)
    share = _async_sessions() if role == SESSION and reading.is_async else find_in(reading.shared, plain)
    return _Asked(parameter, annotation, plain, role, get, share)


def _filled_by_itself(
    fills: Callable[[AskedArgument], Argument],
    parameter: inspect.Parameter,
    marks: tuple[Any, ...],
    reading: _Reading,
) -> Argument:
    if reading.arguments is None:
        reading.refuse(f"its parameter {str(parameter)!r} is passed to handlers only")
    return fills(AskedArgument(reading.name, parameter.name, marks, reading.is_async, reading.arguments))


def _choose_payload(reading: _Reading) -> None:
    """Choose the first parameter without another meaning as the payload; one without default comes first."""
    open_ones = [asked for asked in reading.asked if asked.get is None]
    candidates = [asked for asked in open_ones if not asked.has_default] or [
        asked for asked in open_ones if asked.parameter.kind is not asked.parameter.KEYWORD_ONLY
    ]
    if not candidates:
        return
    chosen = candidates[0]
    for other in candidates[1:]:
        if not other.has_default:
            reading.refuse(
                f"no value fits its parameter {str(other.parameter)!r}: {chosen.parameter.name!r} is the payload "
                f"already ({reading.known()}); give it a default, or remove it"
            )
    _require_possible(chosen, reading)
    chosen.role, chosen.get = PAYLOAD, _payload_getter(reading.validate)


def _require_possible(chosen: _Asked, reading: _Reading) -> None:
    """Set how the payload is validated, or report why no message can match it."""
    reading.is_batch = chosen.plain is Batch or get_origin(chosen.plain) is Batch
    annotation = (*get_args(chosen.plain), Any)[0] if reading.is_batch else chosen.annotation
    annotation = Any if annotation is inspect.Parameter.empty else annotation
    if annotation is bytes and reading.body_format not in {None, "bytes"}:
        reading.refuse(
            f"its parameter {str(chosen.parameter)!r} takes raw bytes, but the topic's format is "
            f"{reading.body_format}: write format: bytes, or take a dict or a model"
        )
    try:
        reading.validate = make_validate(annotation)
        reading.payload = annotation if reading.validate is not None else None
    except TypeError as error:
        reading.refuse(
            f"no value fits its parameter {str(chosen.parameter)!r}, and it cannot be the payload: {error} "
            f"({reading.known()}); as payload write a pydantic model, dataclass, TypedDict, dict, list, str or Any"
        )


def _payload_getter(validate: Validate | None) -> Getter:
    return (lambda _, item: item.payload) if validate is None else (lambda _, item: validate(item.payload))


def _fill(reading: _Reading) -> None:
    by_name = False
    for asked in reading.asked:
        if asked.get is None:
            by_name = True  # it keeps its default, so what follows cannot be given by position
            continue
        keyword = by_name or asked.parameter.kind is asked.parameter.KEYWORD_ONLY
        if keyword and asked.parameter.kind is asked.parameter.POSITIONAL_ONLY:
            reading.refuse(
                f"its parameter {asked.parameter.name!r} stands behind one that is left at its default: "
                "move it to the front"
            )
        reading.filled.append(
            Filled(
                asked.parameter.name, asked.role, asked.get, keyword, asked.share, asked.end, asked.outside
            )
        )


def _require_batch(reading: _Reading) -> None:
    """Refuse parameters with one value per message in a handler that is called once for many."""
    if reading.effects is Effects.EXTERNAL:
        reading.refuse(
            "it takes a Batch, but where effects are external every message runs on its own: "
            "take one payload, or write effects: database"
        )
    for parameter in reading.filled:
        if parameter.role in {ENVELOPE, PROVIDED} and parameter.share is None:
            hint = " (its envelopes are batch.envelopes)" if parameter.role == ENVELOPE else ""
            reading.refuse(
                f"it takes a Batch, so its parameter {parameter.name!r} would be one value for many messages"
                f"{hint}: take Batch, Session and Publisher only, or one payload"
            )


def _special(parameter: inspect.Parameter, plain: Any, reading: _Reading) -> tuple[str, Getter | None]:
    found = find_in(reading.provided, plain)
    if found is not None:
        return PROVIDED, found
    share = find_in(reading.shared, plain)
    if share is not None:
        return PROVIDED, lambda run, _: share(run)
    if plain is Envelope:
        return ENVELOPE, lambda _, item: item.envelope
    if _is_async_session(plain) if reading.is_async else plain is Session:
        if reading.effects is Effects.EXTERNAL:
            reading.refuse(
                f"its parameter {parameter.name!r} is {type_name(plain)}, but its effects are external, where nothing "
                "commits it: write effects: database, or open a session of your own"
            )
        if not reading.is_async:
            return SESSION, lambda run, _: run.session
        give = _async_sessions()
        return SESSION, lambda run, _: give(run)
    if looks_like_session(plain):
        reading.refuse(
            f"its parameter {parameter.name!r} is {type_name(plain)}, which cannot be passed"
            + (
                " to an async handler: write sqlalchemy.ext.asyncio.AsyncSession, or def instead of async def"
                if reading.is_async
                else ": write sqlalchemy.orm.Session, or async def if it is AsyncSession"
            )
        )
    return PAYLOAD, None


def _is_async_session(annotation: Any) -> bool:
    # By its name: without greenlet the class cannot be imported, and a handler that requests it has imported it.
    module = str(getattr(annotation, "__module__", ""))
    return getattr(annotation, "__name__", "") == _ASYNC_SESSION and module.startswith(
        "sqlalchemy.ext.asyncio"
    )


def _async_sessions() -> Share:
    from oncemq.handler.async_session import async_session_of  # noqa: PLC0415 - needs greenlet

    return async_session_of
