"""Finds the functions of a consumer's handler or routes, and binds their arguments."""

from collections.abc import Mapping
from typing import Any, Final

from oncemq.common.redaction import Redactor
from oncemq.config.build.around_handlers import (
    require_payload,
    with_spans,
)
from oncemq.config.build.consumers.chains import Chains
from oncemq.config.build.consumers.context import BuildContext
from oncemq.config.build.importing import import_object, reference_of
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.config.model.fields import WrongValue
from oncemq.config.model.routes_section import IGNORE, OTHERWISE, WORDS
from oncemq.contracts.arguments import ArgumentScope
from oncemq.contracts.publisher import Publisher, Publishers
from oncemq.contracts.strategy import Strategy
from oncemq.errors import OnceMQError
from oncemq.handler.binding import BoundHandler, bind
from oncemq.handler.middlewares import with_middlewares
from oncemq.handler.routes import with_routes
from oncemq.handler.signature import Getter
from oncemq.handler.upcasting import Upcast
from oncemq.ledger.database.async_engine import async_driver
from oncemq.message.expressions import compile_expression

OTHERS: Final = ""
"""Stands for the handler of `otherwise` among the values of routes, none of which is empty."""


def find_functions(settled: ConsumerSettings, around: BuildContext) -> Mapping[str, Any] | None:
    """Return the functions of the handlers, by the option, or the value in the message, that names each.

    None if one is not usable; all are tried, so that all problems are reported at once.
    """
    named = _named_handlers(settled)
    found = {name: find_function(handler, _path_of(name, settled), around) for name, handler in named.items()}
    return None if None in found.values() else found


def _named_handlers(settled: ConsumerSettings) -> dict[str, Any]:
    """Return what the file says for each handler: `module:name`, or the function."""
    if settled.routes is None:
        return {"handler": settled.handler}
    others = {} if settled.routes.otherwise in WORDS else {OTHERS: settled.routes.otherwise}
    return {**settled.routes.handlers, **others}


def _path_of(name: str, settled: ConsumerSettings) -> tuple[str | int, ...]:
    """Return the path in the file of a handler, by the option or the value that names it."""
    if settled.routes is None:
        return settled.path(name)
    below = settled.routes.path(name or OTHERWISE)
    return (*settled.path("routes"), *below[1:])


def find_function(named: Any, path: tuple[str | int, ...], around: BuildContext) -> Any:
    """Return the function that a name stands for, or None; the reason is reported at `path`."""
    try:
        found = named if callable(named) else import_object(named, around.folder)
    except WrongValue as error:
        around.report.error(path, error)
        return None
    if not callable(found):
        advice = "name a function: def handler(order: dict) -> None"
        around.report.at(path, f"{named!r} is not a function", advice)
        return None
    return found


def _provided(chain: list[Strategy]) -> dict[type, Getter]:
    return {wanted: give for strategy in chain for wanted, give in strategy.provides().items()}


def bind_handlers(
    functions: Mapping[str, Any],
    chains: Chains,
    settled: ConsumerSettings,
    around: BuildContext,
    publishers: Publishers,
    upcast: Upcast | None,
) -> BoundHandler | None:
    """Return the consumer's handler with its arguments filled, or None; the reasons are reported."""
    bound_by, named = dict[str, BoundHandler](), _named_handlers(settled)
    for value, function in functions.items():
        try:
            bound = bind(
                function,
                name=reference_of(function, named[value]),
                provided=_provided(chains.of(value)) | {Publisher: publishers.of_item},
                shared={Publisher: publishers.of_run},
                effects=settled.effects,
                body_format=settled.format,
                upcast=upcast,
                arguments=ArgumentScope(compile_expression, around.redis),
            )
            bound_by[value] = require_payload(bound, upcast)
        except OnceMQError as error:
            around.report.error(_path_of(value, settled), error)
    if len(bound_by) < len(functions):
        return None
    routes = settled.routes
    try:
        if routes is None:
            (bound,) = bound_by.values()
        else:
            otherwise = bound_by.pop(OTHERS, None)
            bound = with_routes(
                bound_by, routes.by, otherwise, settled.topic, ignore=routes.otherwise == IGNORE
            )
        if bound.is_async and settled.transactional and around.engine is not None:
            async_driver(around.engine)
        bound = with_middlewares(bound, around.middlewares, settled.name)
    except OnceMQError as error:
        around.report.error(settled.path("handler" if routes is None else "routes"), error)
        return None
    redact = Redactor(around.report.problems.secrets, row_values=around.row_values)
    return with_spans(bound, settled, around.tracing, around.schemes.get(settled.broker, ""), redact)
