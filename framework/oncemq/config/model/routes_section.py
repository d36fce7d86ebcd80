"""Field `routes:` of a consumer: handlers by a value in the message."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import Field, GetJsonSchemaHandler, PlainValidator, TypeAdapter
from pydantic_core import CoreSchema

from oncemq.config.model.fields import Reference, WrongValue, reference, text
from oncemq.config.model.shared_sections import Retry, RouteMeaning
from oncemq.config.model.strategy_list import StrategyList
from oncemq.config.source.tree import Path
from oncemq.message.expressions import compile_expression

ROUTES: Final = "routes"
BY: Final = "by"
OTHERWISE: Final = "otherwise"
HANDLERS: Final = "handlers"
REJECT: Final = "reject"
IGNORE: Final = "ignore"
UNSUBSCRIBED: Final = "unsubscribed"
WORDS: Final = (REJECT, IGNORE, UNSUBSCRIBED)
"""What `otherwise` may say instead of a handler."""
_EXAMPLE: Final = 'write routes: {by: headers.event_type, order.paid: "handlers:paid"}'


class Route(RouteMeaning):
    """The handler of one value, and what else differs for its messages; what is left out is as for the consumer's others."""

    handler: Reference = Field(
        description="Your function, as `module:name`.",
        examples=["handlers:paid"],
    )
    strategies: StrategyList | None = Field(
        None,
        description="The strategies of these messages, instead of the consumer's. Those that order a key's messages are in all routes.",
        examples=[["unique_key"]],
    )
    retry: Retry | None = Field(None, description="Attempts and pauses of these messages.")

    @property
    def differs(self) -> bool:
        """Return whether it says more than its handler."""
        return bool(self.model_fields_set - {"handler"})


@dataclass(frozen=True, slots=True)
class RoutesOption:
    """Handlers by a value in the message.

    Args:
        by: the expression of the value.
        handlers: `module:name`, or the function itself, by the value's text.
        otherwise: one of `WORDS`, or the handler of all other messages.
        different: what else differs for the messages of a value, by its text.
        below: the values that are declared below `handlers`.
    """

    by: str
    handlers: Mapping[str, Any]
    otherwise: Any = REJECT
    different: Mapping[str, Route] = field(default_factory=dict)
    below: frozenset[str] = frozenset()

    def path(self, value: str) -> Path:
        """Return where a value's route is declared, below the consumer."""
        return (ROUTES, HANDLERS, value) if value in self.below else (ROUTES, value)


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
    detailed = _detailed({str(name): found for name, found in direct.items()})
    detailed |= _detailed({str(name): found for name, found in more.items()}, HANDLERS)
    handlers = {
        str(name): detailed[str(name)].handler if str(name) in detailed else _handler(str(name), handler)
        for name, handler in {**direct, **more}.items()
    }
    if "" in handlers:
        raise WrongValue("has a handler for an empty value", f"write it as {OTHERWISE}:")
    if not handlers:
        raise WrongValue("name no handler", _EXAMPLE)
    otherwise = value.get(OTHERWISE, REJECT)
    return RoutesOption(
        text(by),
        handlers,
        otherwise if otherwise in WORDS else _handler(OTHERWISE, otherwise),
        {name: route for name, route in detailed.items() if route.differs},
        frozenset(map(str, more)),
    )


_DETAILED: Final = TypeAdapter(dict[str, Route])
_NESTED: Final = TypeAdapter(dict[str, dict[str, Route]])


def _detailed(routes: Mapping[str, Any], below: str = "") -> dict[str, Route]:
    """Return the routes that are mappings; an error names its place from `routes` on."""
    found = {name: value for name, value in routes.items() if isinstance(value, Mapping)}
    return _NESTED.validate_python({below: found})[below] if below else _DETAILED.validate_python(found)


def _handler(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        if value.keys() != {"handler"}:
            raise WrongValue(
                f"{name!r} has more than a handler",
                "write the handler alone: what else holds for these messages is the consumer's",
            )
        value = value["handler"]
    try:
        return reference(value)
    except WrongValue as error:
        others = "".join(f", or {word}" for word in WORDS) if name == OTHERWISE else ""
        raise WrongValue(f"the handler of {name!r} {error}", f"{error.advice}{others}") from None


_REFERENCE: Final = {"type": "string", "examples": ["handlers:paid"]}


class _Schema:
    """The JSON Schema of `routes:`."""

    @staticmethod
    def __get_pydantic_json_schema__(_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        route = {"anyOf": [_REFERENCE, handler(Route.__pydantic_core_schema__)]}
        return {
            "type": "object",
            "properties": {
                BY: {
                    "type": "string",
                    "description": "The expression of the value that chooses the handler.",
                    "examples": ["headers.event_type", "body.type"],
                },
                OTHERWISE: {
                    **_REFERENCE,
                    "description": "What becomes of a message with any other value, or none: `reject` makes it a dead letter, `ignore` "
                    "acknowledges it, a handler runs; with `unsubscribed` the broker delivers the messages of the routes alone. Default "
                    "reject.",
                    "examples": [REJECT, IGNORE, UNSUBSCRIBED, "handlers:other"],
                },
                HANDLERS: {
                    "type": "object",
                    "description": "Further handlers, for values that are called like an option here.",
                    "additionalProperties": route,
                },
            },
            "required": [BY],
            "additionalProperties": route,
        }


RoutesField = Annotated[RoutesOption, PlainValidator(_routes), _Schema()]
