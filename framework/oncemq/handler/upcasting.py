"""Brings bodies of older versions to the one that a handler takes, by functions of the user's."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from oncemq.common.error_text import describe
from oncemq.contracts.unit import Item
from oncemq.errors import UnacceptedSchema
from oncemq.message.envelope import Message
from oncemq.message.expressions import compile_expression

Upcast = Callable[[Item], Any]
"""Returns the body that the handler gets; raises UnacceptedSchema."""
_SHOWN: Final = 60


class Upcasts:
    """Reads a message's version, and brings its body to the newest one that is accepted.

    Args:
        version: the expression of a message's version.
        versions: those that are accepted, the lowest first.
        without: the version of messages that name none; None = these are refused.
        steps: functions by the version that they take; each returns a body of the next one.
        decode: returns a message's body, sharing nothing with an earlier result.
        topic: the topic's name, for errors.
    """

    def __init__(
        self,
        version: str,
        versions: Sequence[int],
        without: int | None,
        steps: Mapping[int, Callable[[Any], Any]],
        decode: Callable[[Message], Any],
        topic: str,
    ) -> None:
        self._text = version
        self._find = compile_expression(version)
        self._versions = frozenset(versions)
        self._newest = max(versions)
        self._without = without
        self._steps = steps
        self._decode = decode
        self._topic = topic

    def __call__(self, item: Item) -> Any:
        """Return the body of the newest version."""
        message = item.delivery.message
        found = self._find(message, item.payload)
        version = self._without if found is None else _number(found)
        if version == self._newest:
            return item.payload
        if version is None or version not in self._versions:
            raise UnacceptedSchema(f"message {item.key!r} of topic {self._topic!r}: {self._why(found)}")
        # Strategies still read the body as it came.
        body = self._decode(message)
        for step in range(version, self._newest):
            try:
                body = self._steps[step](body)
            except Exception as error:
                raise UnacceptedSchema(
                    f"message {item.key!r} of topic {self._topic!r}: its body of version {version} cannot be brought to version "
                    f"{step + 1}: {describe(error)}"
                ) from error
            if body is None:
                raise UnacceptedSchema(
                    f"message {item.key!r} of topic {self._topic!r}: the function from version {step} to {step + 1} returned nothing"
                )
        return body

    def _why(self, found: Any) -> str:
        accepted = f"accepted are {', '.join(map(str, sorted(self._versions)))}"
        if found is None:
            return f"it has no {self._text}, which says its version; {accepted}"
        shown = str(found)[:_SHOWN]
        if _number(found) is None:
            return f"{self._text} {shown!r} is no version; {accepted}"
        return f"version {shown} is not accepted; {accepted}"


def _number(value: Any) -> int | None:
    """Return 2 for 2, "2" and "v2"; None for what is no version."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        return None
    digits = value.removeprefix("v")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None
