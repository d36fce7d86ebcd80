"""Brings bodies of older versions to the one that a handler takes, by functions of the user's."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from oncemq.common.error_text import describe
from oncemq.contracts.unit import Item
from oncemq.errors import UnacceptedSchema
from oncemq.message.body_version import BodyVersion
from oncemq.message.envelope import Message
from oncemq.schemas.bodies import BodySchemas

Upcast = Callable[[Item], Any]
"""Returns the body that the handler gets; raises UnacceptedSchema."""
_SHOWN: Final = 60


class Upcasts:
    """Reads a message's version, and brings its body to the newest one that is accepted.

    Args:
        version: reads a message's version.
        versions: those that are accepted, the lowest first.
        steps: functions by the version that they take; each returns a body of the next one.
        decode: returns a message's body, sharing nothing with an earlier result.
        topic: the topic's name, for errors.
        schemas: each body is checked against that of its own version; None = none is.
    """

    def __init__(
        self,
        version: BodyVersion,
        versions: Sequence[int],
        steps: Mapping[int, Callable[[Any], Any]],
        decode: Callable[[Message], Any],
        topic: str,
        schemas: BodySchemas | None = None,
    ) -> None:
        self._version_of = version.of
        self._versions = frozenset(versions)
        self._newest = max(versions)
        self._check = None if schemas is None else schemas.check
        self._steps = steps
        self._decode = decode
        self._topic = topic

    def __call__(self, item: Item) -> Any:
        """Return the body of the newest version."""
        message = item.delivery.message
        version = self._version_of(message, item.payload, item.key)
        if version not in self._versions:
            raise UnacceptedSchema(
                f"message {item.key!r} of topic {self._topic!r}: version {str(version)[:_SHOWN]} is not accepted; accepted are "
                f"{', '.join(map(str, sorted(self._versions)))}"
            )
        if self._check is not None:
            self._check(version, item.payload, item.key)
        if version == self._newest:
            return item.payload
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
