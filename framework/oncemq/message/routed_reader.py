"""Reads messages of a topic whose routes declare key, version, identity or schema of their own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from oncemq.errors import MessageRefused
from oncemq.message.envelope import Envelope, Message
from oncemq.message.expressions import Expression
from oncemq.message.reader import Reader


@dataclass(frozen=True, slots=True)
class RouteReader:
    """How the messages of a route are read.

    Args:
        number: `Delivery.route` of its messages.
        reader: its key, version and identity.
        validate: raises InvalidPayload for a body that its schema does not allow; None without one.
    """

    number: int
    reader: Reader
    validate: Callable[[Any], Any] | None = None


class RoutedReader(Reader):
    """Reads each message as its route declares.

    Args:
        find: the value that chooses the route.
        others: reads the messages of no such route, and decodes all bodies.
        routes: by the value's text.
    """

    __slots__ = ("_find", "_others", "_routes")

    def __init__(self, find: Expression, others: RouteReader, routes: Mapping[str, RouteReader]) -> None:
        self._find = find
        self._others = others
        self._routes = routes

    def read(self, message: Message) -> tuple[Envelope, Any]:
        """Return the envelope and the decoded body; as `Reader.read`."""
        _, envelope, body = self.read_with_route(message)
        return envelope, body

    def read_with_route(self, message: Message) -> tuple[int, Envelope, Any]:
        """Return `Delivery.route` of a message, its envelope and its decoded body; as `Reader.read`."""
        body = self._others.reader.decode(message)
        value = self._find(message, body)
        if type(value) is not str:
            value = text_of(value)
        route = self._routes.get(value, self._others)
        if route.validate is not None:
            try:
                route.validate(body)
            except MessageRefused as error:
                error.key = route.reader.key_of(message, body)
                raise
        return route.number, *route.reader.read_decoded(message, body)

    def decode(self, message: Message) -> Any:
        """Return the body decoded again; as `Reader.decode`."""
        return self._others.reader.decode(message)


def text_of(value: Any) -> str:
    """Return a value of a message as routes are written: numbers as digits, true and false, nothing as an empty text."""
    if value is None or isinstance(value, dict | list):
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
