"""Handlers that a consumer of `App` chooses from by a value in the message."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar, Unpack

from oncemq.app_options import RouteOptions
from oncemq.config.source.problems import ConfigProblem, Position
from oncemq.config.source.tree import Fields, from_python

Handler = TypeVar("Handler", bound=Callable[..., Any])


class ConsumerRoutes:
    """The routes of one consumer; `App.routes` makes it.

    Args:
        handlers: where they are declared.
        problems: receives what is wrong with them.
    """

    def __init__(self, handlers: Fields, problems: list[ConfigProblem]) -> None:
        self._handlers = handlers
        self._problems = problems

    def route(self, value: str, **more: Unpack[RouteOptions]) -> Callable[[Handler], Handler]:
        """Make the decorated function the handler of messages with this value; it remains an ordinary function.

        Args:
            value: as in the message; numbers as digits.
            more: what differs for its messages from the consumer's others, as in YAML.
        """
        caller = sys._getframe(1)
        position = Position(caller.f_code.co_filename, caller.f_lineno)

        def declare(function: Handler) -> Handler:
            if value in self._handlers.fields:
                text = f"the value {value!r} has two handlers"
                self._problems.append(ConfigProblem(position, text, "keep one"))
            else:
                route = {"handler": function, **more} if more else function
                self._handlers.fields[value] = from_python(route, position)
                self._handlers.keys[value] = position
            return function

        return declare
