"""Field `routes:` of a consumer: handlers by a value in the message."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import PlainValidator, WithJsonSchema

from oncemq.config.model.fields import WrongValue, reference, text
from oncemq.message.expressions import compile_expression

BY: Final = "by"
OTHERWISE: Final = "otherwise"
HANDLERS: Final = "handlers"
REJECT: Final = "reject"
IGNORE: Final = "ignore"
_EXAMPLE: Final = 'write routes: {by: headers.event_type, order.paid: "handlers:paid"}'


@dataclass(frozen=True, slots=True)
class RoutesOption:
    """Handlers by a value in the message.

    Args:
        by: the expression of the value.
        handlers: `module:name`, or the function itself, by the value's text.
        otherwise: `reject`, `ignore`, or the handler of all other messages.
    """

    by: str
    handlers: Mapping[str, Any]
    otherwise: Any = REJECT


def _routes(value: Any) -> RoutesOption:
    if isinstance(value, RoutesOption):
        return value
    if not isinstance(value, Mapping):
        raise WrongValue("should be a mapping of values to handlers", _EXAMPLE)
    by = value.get(BY)
    if by is None:
        raise WrongValue(
            "names no value that chooses the handler", f"add {BY}: headers.event_type, or {BY}: body.type"
        )
    try:
        compile_expression(text(by))
    except ValueError as error:
        raise WrongValue(f"`{BY}` cannot be used: {error}", "write one like headers.event_type") from None
    more = value.get(HANDLERS, {})
    if not isinstance(more, Mapping):
        raise WrongValue(f"`{HANDLERS}` should be a mapping of values to handlers", _EXAMPLE)
    direct = {name: handler for name, handler in value.items() if name not in {BY, OTHERWISE, HANDLERS}}
    if twice := sorted(map(str, direct.keys() & more.keys())):
        raise WrongValue(f"the value {twice[0]!r} has two handlers", f"keep it here or below `{HANDLERS}`")
    handlers = {str(name): _handler(str(name), handler) for name, handler in {**direct, **more}.items()}
    if "" in handlers:
        raise WrongValue("has a handler for an empty value", f"write it as {OTHERWISE}:")
    if not handlers:
        raise WrongValue("name no handler", _EXAMPLE)
    otherwise = value.get(OTHERWISE, REJECT)
    return RoutesOption(
        text(by), handlers, otherwise if otherwise in (REJECT, IGNORE) else _handler(OTHERWISE, otherwise)
    )


def _handler(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        unknown = sorted(map(str, value.keys() - {"handler"}))
        if unknown or "handler" not in value:
            raise WrongValue(
                f"the route {name!r} has {', '.join(map(repr, unknown)) or 'no handler'}",
                "a route has a handler and nothing else: strategies, retry and key are the consumer's",
            )
        value = value["handler"]
    try:
        return reference(value)
    except WrongValue as error:
        others = f" – or {REJECT}, or {IGNORE}" if name == OTHERWISE else ""
        raise WrongValue(f"the handler of {name!r} {error}", f"{error.advice}{others}") from None


_REFERENCE: Final = {"type": "string", "examples": ["handlers:paid"]}
_HANDLER: Final = {
    "anyOf": [
        _REFERENCE,
        {
            "type": "object",
            "properties": {"handler": _REFERENCE},
            "required": ["handler"],
            "additionalProperties": False,
        },
    ]
}
RoutesField = Annotated[
    RoutesOption,
    PlainValidator(_routes),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                BY: {
                    "type": "string",
                    "description": "The expression of the value that chooses the handler.",
                    "examples": ["headers.event_type", "body.type"],
                },
                OTHERWISE: {
                    **_HANDLER,
                    "description": "What becomes of a message with any other value, or none: `reject` makes it a dead letter, `ignore` "
                    "acknowledges it, a handler runs. Default reject.",
                    "examples": [REJECT, IGNORE, "handlers:other"],
                },
                HANDLERS: {
                    "type": "object",
                    "description": "Further handlers, for values that are called like an option here.",
                    "additionalProperties": _HANDLER,
                },
            },
            "required": [BY],
            "additionalProperties": _HANDLER,
        }
    ),
]
