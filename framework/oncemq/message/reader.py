"""From a `Message` to its `Envelope` and payload, as the topic declares key, version, identity and format."""

from typing import Any, Protocol

from oncemq.message.envelope import Envelope, Message


class Reader(Protocol):
    """What a topic's messages are; made once for each consumer."""

    def read(self, message: Message) -> tuple[Envelope, Any]:
        """Return the envelope and the decoded body.

        Raises:
            MessageRefused: it is not what the topic declares; the reason says what is wrong.
        """
        ...

    def decode(self, message: Message) -> Any:
        """Return the body decoded anew, sharing nothing with an earlier result."""
        ...
